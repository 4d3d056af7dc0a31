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
from fedleak.attacks.record_membership.pool import KNOWS, NEEDS, ServerPool
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
from fedleak.core.metric import Metric
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
        candidates = len(view.auxiliary[CANDIDATE_LABELS])
        check_tensor("scores", self.scores, (len(self.after), len(self.senders), candidates))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC of each client over the pool, and the share of its records whose holder is named.

        Raises:
            ViewError: no client with a ground truth holds a record.
        """
        membership, has_truth = truth_after(view, truth["own_member"].double(), self.senders, self.after[:1])
        clients, _ = truth_after(view, truth["clients"], self.senders, self.after[:1])
        is_member = membership[0] > 0.5
        if not bool(is_member.any()):
            raise ViewError("expected candidates that one of the clients holds, got none")
        # Records that somebody holds, and of each its holder.
        records = is_member.any(0).nonzero().flatten()
        holder = is_member[:, records].int().argmax(0)
        records_of_client = holder.bincount(minlength=len(is_member))
        auc = []
        source = []
        for scores in self.scores:
            everything = torch.ones_like(is_member[has_truth])
            auc.append(auc_per_victim(scores[has_truth], is_member[has_truth], everything))
            # Share of each client's records whose highest score is that of the client.
            is_named = top_share(scores[:, records].T, holder, 1)
            named = torch.zeros(len(is_member), dtype=torch.float64).index_add_(0, holder, is_named)
            share = (named / records_of_client).masked_fill(records_of_client == 0, torch.nan)
            source.append(share[has_truth])
        metrics = {"auc": torch.cat(auc), SOURCE.name: torch.cat(source)}
        metrics[REVEALED.name] = (~self.hidden[:, has_truth]).double().flatten()
        positives = is_member[has_truth].sum(1).repeat(len(self.after))
        return scores_after(
            metrics,
            self.revealed.of(has_truth),
            items=torch.full_like(positives, is_member.shape[1]),
            positives=positives,
            clients=clients[0, has_truth],
            after=self.after,
        )


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

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import HoldersToReveal
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = HoldersToReveal()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.94
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
            taking = [round_taking[:, torch.randperm(count, generator=generator)] for round_taking in taking]
        records = odds[0].shape[1]
        # Log likelihoods of each record, with each client as its holder, and with nobody.
        of_holders = torch.zeros(count, records).double()
        of_nobody = torch.zeros(records).double()
        # In how many sums of each client each record was found.
        times_found = torch.zeros(count, records)
        log_prior_of_holder = math.log(_HELD / count)
        log_prior_of_nobody = math.log(1 - _HELD)
        reported_after = lengths(self.after, len(odds))
        scores = []
        hidden_after = []
        for rounds, (log_odds, round_taking) in enumerate(zip(odds, taking, strict=True), start=1):
            # In the sums of its holder a record is, in all others it is not.
            of_holders += round_taking.T @ logsigmoid(log_odds) + (1 - round_taking).T @ logsigmoid(-log_odds)
            of_nobody += logsigmoid(-log_odds).sum(0)
            times_found += round_taking.T.float() @ (log_odds > 0).float()
            joint = torch.cat([of_holders + log_prior_of_holder, (of_nobody + log_prior_of_nobody)[None]])
            hidden_after.append(self._is_hidden(joint.log_softmax(0)[:-1], times_found))
            if rounds in reported_after:
                scores.append(joint[:-1] - _log_sum_of_others(joint, count))
        hidden = torch.stack(hidden_after)
        predicted = torch.full((count,), torch.nan, dtype=torch.float64)
        if not self.shuffled:  # the prediction is of the true participants
            predicted = first_revealed(alike_participation(taking))
        return HoldersOverRounds(
            senders=participants.clients,
            after=torch.tensor(reported_after),
            scores=torch.stack(scores),
            hidden=hidden[torch.tensor(reported_after) - 1],
            revealed=Revealed(first=first_revealed(hidden), predicted=predicted),
        )

    def _is_hidden(self, log_posterior: Tensor, times_found: Tensor) -> Tensor:
        """``(C,)`` whether too many records are undecided, of clients with a posterior ``(C, M)`` for each record."""
        is_decided = (log_posterior > math.log(_SURE)) | (log_posterior < math.log(1 - _SURE))
        # Only records that were found in a sum of the client can be its.
        is_in_question = times_found > 0
        undecided = (is_in_question & ~is_decided).sum(1)
        too_many = undecided >= self.sensitive * is_in_question.sum(1)
        return too_many | ~is_in_question.any(1)


def _log_sum_of_others(logs: Tensor, count: int) -> Tensor:
    """``(count, M)`` logarithm of the sum of all rows of ``logs`` but one, for each of the first `count` rows."""
    sums = []
    for row in range(count):
        sums.append(torch.cat([logs[:row], logs[row + 1 :]]).logsumexp(0))
    return torch.stack(sums)


def alike_participation(taking: list[Tensor]) -> Tensor:
    """``(T, C)`` bool: after each round, clients that took part in none, or whose rounds another client shares.

    Example:
        >>> alike_participation([torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])]).tolist()
        [[True, True, True], [False, False, True]]
    """
    hidden_after = []
    participation = torch.zeros(0, taking[0].shape[1], dtype=torch.float64)
    for round_taking in taking:
        participation = torch.cat([participation, round_taking.double()])
        # Every column equals itself, so one that equals another is counted more than once.
        has_twin = (participation.T[:, None] == participation.T).all(2).sum(1) > 1
        hidden_after.append(has_twin | ~(participation > 0).any(0))
    return torch.stack(hidden_after)


def _record_sums(
    view: History, participants: Participants, most: int, generator: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """By round, log odds ``(G, M)`` that a record is in a sum, and participants ``(G, C)``."""
    odds = []
    taking = []
    rounds = min(len(view.by_round) or most, most)
    for number, part in enumerate(each_round_of_sums(view, participants, most, batches=True), start=1):
        sums = part.view
        fits = CandidateFit().of_round(partial(iter, [sums]), sums.example_counts, ServerPool.of(sums), generator)
        log_odds = torch.stack([sum_fit.log_odds for _, sum_fit in fits]).double()
        odds.append(log_odds.clamp(-_LARGEST, _LARGEST))
        taking.append(part.taking)
        report_progress(number / rounds)
    return odds, taking
