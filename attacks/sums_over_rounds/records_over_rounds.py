"""Holders of records, found in sums over rounds."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fedleak.attacks.applicability import without_sums
from fedleak.attacks.record_membership.candidate_fit import CandidateFit
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, Pool
from fedleak.attacks.source.source_inference import SOURCE
from fedleak.attacks.sums_over_rounds.base import SumsAttack, lengths
from fedleak.attacks.sums_over_rounds.estimates import (
    PREDICTED,
    REVEALED,
    ROUNDS_TO_REVEAL,
    Revealed,
    first_revealed,
    scores_after,
    truth_after,
)
from fedleak.attacks.sums_over_rounds.received_sums import Participants, each_round_of_sums
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.metric_table import Metric
from fedleak.core.progress import report_progress
from fedleak.core.scoring import auc_per_victim, top_share
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANDIDATE_LABELS, View

_HELD = 0.5
"""Prior probability that one of the clients holds a candidate."""
_SURE = 0.975
"""Posterior probability that a client holds a record, or does not, from which on that is decided."""
_LARGEST = 30.0
"""Largest log odds that one sum gives: no fit is more certain of itself than that."""


@dataclass(frozen=True, kw_only=True)
class HoldersOverRounds(Estimate):
    """Which client holds each record of a pool, after several numbers of rounds.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        after: ``(G,)`` numbers of rounds.
        scores: ``(G, U, M)`` log odds that the client holds the record.
        hidden: ``(G, U)`` bool, clients of whom too many records are undecided.
        revealed: after how many rounds.
    """

    inferred = "which records of a pool it holds, although the server receives only sums of updates"
    truth = ("own_member", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = ("auc", SOURCE, REVEALED, ROUNDS_TO_REVEAL, PREDICTED)
    senders: Tensor
    after: Tensor
    scores: Tensor
    hidden: Tensor
    revealed: Revealed

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_sums(view, truth)

    def check(self, view: View) -> None:
        check_tensor("scores", self.scores, (len(self.after), len(self.senders), len(view.auxiliary[CANDIDATE_LABELS])))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of each client over the pool, and the share of its records whose holder is named.

        Raises:
            ViewError: no client with a ground truth holds a record.
        """
        member, known = truth_after(view, truth["own_member"].double(), self.senders, self.after[:1])
        clients, _ = truth_after(view, truth["clients"], self.senders, self.after[:1])
        held = member[0] > 0.5
        if not bool(held.any()):
            raise ViewError("expected candidates that one of the clients holds, got none")
        auc, source = [], []
        records = held.any(0).nonzero().flatten()
        holder = held[:, records].int().argmax(0)
        count = holder.bincount(minlength=len(held))
        for scores in self.scores:
            auc.append(auc_per_victim(scores[known], held[known], torch.ones_like(held[known])))
            right = top_share(scores[:, records].T, holder, 1)
            own = torch.zeros(len(held), dtype=torch.float64).index_add_(0, holder, right) / count
            source.append(own.masked_fill(count == 0, torch.nan)[known])
        metrics = {"auc": torch.cat(auc), SOURCE.name: torch.cat(source)}
        metrics[REVEALED.name] = (~self.hidden[:, known]).double().flatten()
        positives = held[known].sum(1).repeat(len(self.after))
        sizes = torch.full_like(positives, held.shape[1]), positives
        return scores_after(metrics, self.revealed.of(known), *sizes, clients=clients[0, known], after=self.after)


@dataclass(frozen=True, kw_only=True)
class HoldersToReveal(SumsAttack):
    """Holder of each record, by the sums in which it is and those in which it is not.

    `candidate-fit` on a sum gives the log odds that a record is in the data of one of the participants. A record has
    one holder at most, so the likelihood of each client as the holder is a product over the rounds: of the probability
    that the record is in the sum where the client took part, and that it is not where the client did not. With exact
    odds, the holder is known as soon as no other client took part in the same rounds.

    Threat model: that of `RoundsToReveal`, and a pool of records as of `candidate-fit`.

    Args:
        sensitive: share of undecided records, among those that were found in a sum of the client, below which the
            client counts as revealed. A record is decided for a client that holds it, or does not, with a probability
            of 0.975.

    Variants:
        shuffled: control: the participants of each round are drawn anew.

    References:
        This project.
    """

    name = "holders-to-reveal"
    estimates: ClassVar[type[Estimate]] = HoldersOverRounds
    cost = "seconds per round, tens of seconds for 2,000 candidates"
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees=SumsAttack.sees,
        knows=KNOWS,
        needs=("participants", *NEEDS),
    )
    variants: ClassVar[Variants] = {"shuffled": {"shuffled": True, "baseline": True, "control": True}}

    shuffled: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> HoldersOverRounds:
        participants = Participants.of(view)
        odds, taking = view.shared.value(
            ("record sums", self.most), lambda: _record_sums(view, participants, self.most, generator)
        )
        count = len(participants.clients)
        if self.shuffled:
            taking = [own[:, torch.randperm(count, generator=generator)] for own in taking]
        likelihood, found_in = torch.zeros(count, odds[0].shape[1]).double(), torch.zeros(count, odds[0].shape[1])
        nobody, kept, scores, hidden = torch.zeros(odds[0].shape[1]).double(), lengths(self.after, len(odds)), [], []
        prior = math.log(_HELD / count), math.log(1 - _HELD)
        for rounds, (own, part) in enumerate(zip(odds, taking, strict=True), start=1):
            likelihood += part.T @ logsigmoid(own) + (1 - part).T @ logsigmoid(-own)
            nobody += logsigmoid(-own).sum(0)
            found_in += part.T.float() @ (own > 0).float()
            everything = torch.cat([likelihood + prior[0], (nobody + prior[1])[None]])
            law = everything.log_softmax(0)
            asked = found_in > 0
            decided = (law[:-1] > math.log(_SURE)) | (law[:-1] < math.log(1 - _SURE))
            undecided = (asked & ~decided).sum(1)
            hidden.append((undecided >= self.sensitive * asked.sum(1)) | ~asked.any(1))
            if rounds in kept:
                others = torch.stack(
                    [torch.cat([everything[:k], everything[k + 1 :]]).logsumexp(0) for k in range(count)]
                )
                scores.append(everything[:-1] - others)
        together = torch.stack(hidden)
        never = torch.full((count,), torch.nan, dtype=torch.float64)
        return HoldersOverRounds(
            senders=participants.clients,
            after=torch.tensor(kept),
            scores=torch.stack(scores),
            hidden=together[torch.tensor(kept) - 1],
            revealed=Revealed(
                first=first_revealed(together),
                predicted=never if self.shuffled else first_revealed(alike_participation(taking)),
            ),
        )


def alike_participation(taking: list[Tensor]) -> Tensor:
    """``(T, C)`` bool: after each round, clients that took part in none, or whose rounds another client shares.

    Example:
        >>> alike_participation([torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])]).tolist()
        [[True, True, True], [False, False, True]]
    """
    found, whole = [], torch.zeros(0, taking[0].shape[1], dtype=torch.float64)
    for own in taking:
        whole = torch.cat([whole, own.double()])
        same = (whole.T[:, None] == whole.T).all(2).sum(1) > 1
        found.append(same | ~(whole > 0).any(0))
    return torch.stack(found)


def _record_sums(
    view: History, participants: Participants, most: int, generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """By round, log odds ``(G, M)`` that a record is in a sum, and participants ``(G, C)``."""
    odds, taking, total = [], [], min(len(view.by_round) or most, most)
    for number, part in enumerate(each_round_of_sums(view, participants, most, batches=True), start=1):
        sums = part.view
        fits = CandidateFit().of_round(partial(iter, [sums]), sums.example_counts, Pool.of(sums), generator)
        odds.append(torch.stack([one.log_odds for _, one in fits]).double().clamp(-_LARGEST, _LARGEST))
        taking.append(part.taking)
        report_progress(number / total)
    return odds, taking
