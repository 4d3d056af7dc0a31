"""Words of single clients from sums over rounds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_sums
from fedleak.attacks.sums_over_rounds.base import USUAL, SumsAttack, lengths, shuffled_participants
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
from fedleak.attacks.sums_over_rounds.tracking import Z95, SumsOf, deviations_after, posterior
from fedleak.attacks.sums_over_rounds.whole_numbers import at_least_zero
from fedleak.attacks.words.estimates import dense
from fedleak.attacks.words.next_words import next_word_shares, words_per_text
from fedleak.attacks.words.touched_rows import TouchedRows
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.metric import Metric
from fedleak.core.progress import with_progress
from fedleak.core.ranges import PositiveFloat
from fedleak.core.scoring import auc_per_victim, f1_per_victim
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import View


@dataclass(frozen=True, kw_only=True)
class WordsOverRounds(Estimate):
    """Which words each client's texts have, after several numbers of rounds.

    Attributes:
        senders: ``(U,)`` pseudonyms of the clients.
        after: ``(G,)`` numbers of rounds.
        scores: ``(G, U, W)``, higher means more likely; word 0 is padding.
        decisions: ``(G, U, W)`` bool.
        hidden: ``(G, U)`` bool, clients of whom too many words are undecided.
        revealed: from which round on.
    """

    inferred = "which words its texts have, although the server receives only sums of updates"
    truth = ("words", "clients")
    judged_by = ("f1",)
    metrics: ClassVar[tuple[str | Metric, ...]] = ("auc", "f1", REVEALED, ROUNDS_TO_REVEAL, PREDICTED)
    senders: Tensor
    after: Tensor
    scores: Tensor
    decisions: Tensor
    hidden: Tensor
    revealed: Revealed

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_sums(view, truth)

    def check(self, view: View) -> None:
        shape = (len(self.after), len(self.senders), self.decisions.shape[-1])
        check_tensor("scores", self.scores, shape)
        if self.decisions.shape != shape or self.decisions.dtype != torch.bool:
            raise EstimateError(f"decisions: expected bool of shape {shape}, got {tuple(self.decisions.shape)}")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC and F1 of each client's words after every number of rounds.

        Raises:
            ViewError: the ground truth has no client.
        """
        words, has_truth = truth_after(view, truth["words"], self.senders, self.after)
        if not bool(has_truth.any()):
            raise ViewError("expected the words of some clients, got none")
        clients, _ = truth_after(view, truth["clients"], self.senders, self.after[:1])
        # A row for each client after each number of rounds.
        words = words[:, has_truth].flatten(0, 1)
        scores = self.scores[:, has_truth].flatten(0, 1)
        decisions = self.decisions[:, has_truth].flatten(0, 1)
        is_present = dense(words, torch.ones_like(words), scores.shape[1]) > 0
        mask = torch.ones_like(is_present)
        mask[:, 0] = False  # padding
        metrics = {"auc": auc_per_victim(scores, is_present, mask), "f1": f1_per_victim(decisions, is_present, mask)}
        revealed = self.revealed.of(has_truth)
        if bool(revealed.first.isfinite().any()) or bool(revealed.predicted.isfinite().any()):
            metrics[REVEALED.name] = (~self.hidden[:, has_truth]).double().flatten()
        return scores_after(
            metrics,
            revealed,
            items=mask.sum(1),
            positives=(is_present & mask).sum(1),
            clients=clients[0, has_truth],
            after=self.after,
        )


@dataclass(frozen=True, kw_only=True)
class WordsToReveal(SumsAttack):
    """Words of each client: a word that no sum shows is none of its participants', the others by linear equations.

    A row of the embedding that a sum leaves unchanged belongs to a word that none of its participants has, after any
    number of steps (`touched-rows`). Of the words that remain, the shares among the next words are solved for as class
    shares are by `RoundsToReveal`: the bias of the last layer shows their mean over the participants (`next-words`). A
    client has a word if its share is larger than half of that of a word that occurs once.

    Threat model: that of `RoundsToReveal`; knows which table is the embedding, and which layer is the last.

    Args:
        sensitive: share of undecided words among those that a client may have, below which the client counts as
            revealed. Undecided is a word whose 95 % interval has half an occurrence in it.

    Variants:
        shuffled: control: the participants of each round are drawn anew.

    References:
        This project. Excluding what a negative pool has is the first step of group testing: [Dorfman43].

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import WordsToReveal
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy("texts")
        >>> estimate = WordsToReveal()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["f1"].mean()), 2)
        0.75
    """

    name = "words-to-reveal"
    exact = True
    estimates: ClassVar[type[Estimate]] = WordsOverRounds
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees=SumsAttack.sees,
        knows="which table is the embedding, and the clients' algorithm; uses texts of its own for their length",
        needs=("participants", "deltas", "model"),
    )
    variants: ClassVar[Variants] = {"shuffled": {"shuffled": True, "baseline": True, "control": True}}

    sensitive: PositiveFloat = 0.05
    shuffled: bool = False

    def run(self, view: History, *, generator: torch.Generator) -> WordsOverRounds:
        participants = Participants.of(view)
        sums, touched, taking, per_text = view.shared.value(
            ("word sums", self.most), lambda: _word_sums(view, participants, self.most, generator)
        )
        if self.shuffled:
            orders = [torch.randperm(len(participants.clients), generator=generator) for _ in taking]
            sums = shuffled_participants(sums, orders)
            taking = [round_taking[:, order] for round_taking, order in zip(taking, orders, strict=True)]
        once = 1 / (participants.examples.double() * per_text)[:, None]  # share of a word that occurs once
        reported_after = lengths(self.after, len(taking))
        possible = torch.ones(len(participants.clients), sums.observed[0].shape[1], dtype=torch.bool)
        scores = []
        decisions = []
        hidden_after = []
        law = None
        for rounds in with_progress(range(1, len(taking) + 1)):
            # A word that a sum does not show is none of its participants'.
            is_absent = (taking[rounds - 1].T @ (~touched[rounds - 1]).double()) > 0
            possible &= ~is_absent
            # The most likely law takes long to find; between the reported rounds that of the last one stands.
            of_clients, law = posterior(sums.first(rounds), None if rounds in reported_after else law)
            undecided = possible & ((of_clients.mean - once / 2).abs() < Z95 * of_clients.deviation)
            hidden_after.append(undecided.sum(1) >= self.sensitive * possible.sum(1).clamp(min=1))
            if rounds in reported_after:
                shares = at_least_zero(of_clients, possible)
                # Distance from half an occurrence in standard deviations; excluded words come after all others.
                deviation = of_clients.deviation.clamp(min=1e-9)
                distance = ((shares - once / 2) / deviation).clamp(-1e6, 1e6)
                scores.append(distance.where(possible, -1e6 - 1))
                decisions.append(possible & (shares > once / 2))
        hidden = torch.stack(hidden_after)
        predicted = torch.full((len(once),), torch.nan)
        if not self.shuffled:  # the prediction is of the true participants
            predicted = _predicted_rounds(sums.weights, once.squeeze(1))
        return WordsOverRounds(
            senders=participants.clients,
            after=torch.tensor(reported_after),
            scores=torch.stack(scores),
            decisions=torch.stack(decisions),
            hidden=hidden[torch.tensor(reported_after) - 1],
            revealed=Revealed(first=first_revealed(hidden), predicted=predicted),
        )


def _predicted_rounds(weights: Sequence[Tensor], once: Tensor) -> Tensor:
    """``(C,)`` rounds after which the interval of a word that occurs once, a share ``(C,)``, is narrower than that."""
    # The scale of a word's share, q (1 - q), is about the share q itself.
    widths = deviations_after(weights, USUAL) * 2 * Z95 * once.sqrt()
    return first_revealed(widths >= once)


def _word_sums(
    view: History, participants: Participants, most: int, generator: torch.Generator
) -> tuple[SumsOf, list[Tensor], list[Tensor], float]:
    """Mean shares of next words, words that each sum shows, participants, and next words of a text."""
    weights = []
    observed = []
    touched = []
    taking = []
    per_text = 0.0
    for part in each_round_of_sums(view, participants, most):
        if any(release.noise_scale for release in part.view.releases):
            raise ViewError("expected sums without noise, which hides the rows that nobody changed; got noisy ones")
        weights.append(part.weights)
        taking.append(part.taking)
        shown = TouchedRows().run(part.view, generator=generator).decisions
        touched.append(shown)
        observed.append(next_word_shares(part.view, ~shown).masked_fill(~shown, 0.0))
        per_text = per_text or words_per_text(part.view)
    return SumsOf(weights, observed), touched, taking, per_text
