"""Estimates of a client's words: which ones, and how often each is the next one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.applicability import without_texts
from fedleak.attacks.composition.counts import right_when_rounded
from fedleak.core.answers import Choices
from fedleak.core.estimates import Candidates, Estimate, Scores, check_tensor
from fedleak.core.metric import SHARE, Metric
from fedleak.core.scoring import auc_per_victim, average_precision, best_decisions, f1_per_victim, r_precision
from fedleak.core.view import View


@dataclass(frozen=True, kw_only=True)
class WordSetEstimate(Estimate):
    """Which words of the vocabulary a client's texts have.

    Attributes:
        scores: ``(V, W)``, higher means more likely; word 0 is padding.
        decisions: ``(V, W)`` bool, the attack's own decisions.
        expected: ``(V,)`` F1 that the attack expects of its decisions, NaN for no expectation.
        of_read: whether that is the F1 of the words after which a text goes on.
        evidence: ``(V, W)`` what the update alone says, to which priors are added; None for the scores.
    """

    inferred = "which words its texts have"
    truth = ("words",)
    # Of a vocabulary, a client has few words: any list of frequent ones has an AUC near 1.
    judged_by = ("f1",)
    metrics = (
        *("auc", "f1"),
        Metric(
            "rare-words",
            "Rare words is the share found of the words that only one of the clients has.",
            span=(0.0, 1.0),
        ),
        Metric(
            "rare-precision",
            "Rare precision is the average precision of the words that only one of the clients has, among the words"
            " that it does not have; chance is the share of such words.",
            span=(0.0, 1.0),
        ),
        Metric(
            "r-precision",
            "R-precision is the share of a client's words among as many words of highest score; in adapters, of the"
            " words after which a text goes on.",
            span=(0.0, 1.0),
        ),
        Metric(
            "read-f1",
            "Read F1 is the F1 of the words after which a text goes on: the last word of a text leaves no trace in"
            " adapters.",
            span=(0.0, 1.0),
        ),
        Metric(
            "predicted-f1",
            "Predicted F1 is the one that the attack expects of itself from the noise, without the truth.",
            leak=False,
            predicts="f1",
            span=SHARE,
        ),
        Metric(
            "predicted-read-f1",
            "Predicted read F1 is the read F1 that the attack expects of itself, without the truth.",
            leak=False,
            predicts="read-f1",
            span=SHARE,
        ),
    )
    scores: Tensor
    decisions: Tensor
    expected: Tensor
    of_read: bool = False
    evidence: Tensor | None = None

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def check(self, view: View) -> None:
        check_tensor("decisions", self.decisions, (view.victims, *self.decisions.shape[1:]), dtype=torch.bool)
        check_tensor("scores", self.scores, tuple(self.decisions.shape))
        check_tensor("expected", self.expected, (view.victims,), dtype=torch.float64, finite=False)

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC, F1 and R-precision of each client's words; recall and precision of those that no other client has."""
        vocabulary = self.decisions.shape[1]
        words = dense(truth["words"], torch.ones_like(truth["words"]), vocabulary) > 0
        if "read_words" not in truth:
            return self._scored(words)
        read = dense(truth["read_words"], torch.ones_like(truth["read_words"]), vocabulary) > 0
        return self._scored(words, read)

    def _scored(self, words: Tensor, read: Tensor | None = None) -> Scores:
        mask = torch.ones_like(words)
        mask[:, 0] = False  # padding
        # Words that only one client has are compared with those that it does not have: not with its other words.
        rare = words & (words.sum(0) == 1)
        is_compared = ~(words & ~rare | ~mask)
        number_of_rare = rare.sum(1).double().masked_fill(~rare.any(1), torch.nan)
        compared_scores = self.scores.masked_fill(~is_compared, -torch.inf)
        ranked_words = words if read is None else read
        metrics = {
            "auc": auc_per_victim(self.scores, words, mask),
            "f1": f1_per_victim(self.decisions, words, mask),
            "rare-words": (rare & self.decisions).sum(1) / number_of_rare,
            "rare-precision": average_precision(compared_scores.T, rare.T),
            "r-precision": r_precision(self.scores, ranked_words & mask, mask),
        }
        if read is not None:
            metrics["read-f1"] = f1_per_victim(self.decisions, read, mask)
        if bool(self.expected.isfinite().any()):
            predicted = "predicted-read-f1" if self.of_read else "predicted-f1"
            metrics[predicted] = self.expected
        candidates = Candidates.of_rows("did the client type this word?", self.scores, words, mask)
        if self.evidence is None:
            answers = Choices.of_matrix(
                self.scores, words, lambda odds: self._posterior(odds)._scored(words, read), mask, self.decisions
            )
        else:
            # Decisions next to evidence of their own have frequencies in them, which would count twice.
            answers = Choices.of_matrix(
                self.evidence, words, lambda odds: self._posterior(odds)._scored(words, read), mask, None
            )
        return Scores(metrics, mask.sum(1), (words & mask).sum(1), candidates=candidates, answers=answers)

    @staticmethod
    def _posterior(odds: Tensor) -> "WordSetEstimate":
        """Estimate of log odds ``(V, W)``, with the decisions of largest expected F1."""
        decisions, expected = best_decisions(odds.sigmoid())
        return WordSetEstimate(scores=odds, decisions=decisions, expected=expected)


@dataclass(frozen=True, kw_only=True)
class WordCountEstimate(Estimate):
    """How often each word is the next one in a client's texts.

    Attributes:
        counts: ``(V, W)`` float64, at least 0.
        deviation: ``(V, W)`` predicted standard deviation of the counts.
    """

    inferred = "how often its texts have each word"
    truth = ("words", "next_words")
    metrics = (
        Metric(
            "exact-words",
            "Exact words is the share of occurring words whose rounded count is right.",
            words="gets the number of occurrences right for {} of 100 words",
            span=SHARE,
        ),
        Metric(
            "within-one", "Within one is the share of occurring words whose count is wrong by at most one.", span=SHARE
        ),
        Metric(
            "word-recall",
            "Word recall is the share of a text's words that are inferred, repetitions included.",
            span=SHARE,
        ),
        Metric(
            "predicted-exact-words",
            "Predicted exact words is the share that the attack expects of itself under its assumptions, without the"
            " truth.",
            leak=False,
            predicts="exact-words",
            span=SHARE,
        ),
    )
    counts: Tensor
    deviation: Tensor

    @classmethod
    def inapplicable(cls, view: View, truth: Collection[str]) -> str | None:
        return without_texts(view, truth)

    def check(self, view: View) -> None:
        check_tensor("counts", self.counts, (view.victims, *self.counts.shape[1:]))
        check_tensor("deviation", self.deviation, tuple(self.counts.shape))

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Shares of the words that occur, in the client's texts or in the estimate."""
        true_counts = dense(truth["words"], truth["next_words"], self.counts.shape[1])
        rounded_counts = self.counts.round()
        # Of a vocabulary nearly all words are absent from both, and would be right without any attack.
        occurs = (true_counts > 0) | (rounded_counts > 0)
        total = occurs.sum(1).double().masked_fill(~occurs.any(1), torch.nan)
        error = (rounded_counts - true_counts).abs()
        metrics = {
            "exact-words": ((error == 0) & occurs).sum(1) / total,
            "within-one": ((error <= 1) & occurs).sum(1) / total,
            "word-recall": torch.minimum(rounded_counts, true_counts).sum(1) / true_counts.sum(1).clamp(min=1),
            "predicted-exact-words": (right_when_rounded(self.deviation) * occurs).sum(1) / total,
        }
        return Scores(metrics, occurs.sum(1), (true_counts > 0).sum(1))


def dense(words: Tensor, values: Tensor, vocabulary: int) -> Tensor:
    """``(V, W)`` float64 values of all words, from ``values (V, R)`` of ``words (V, R)``, padded with 0."""
    values_of_words = torch.zeros(len(words), vocabulary, dtype=torch.float64)
    values_of_words.scatter_add_(1, words.long().clamp(max=vocabulary - 1), values.double())
    values_of_words[:, 0] = 0  # padding
    return values_of_words
