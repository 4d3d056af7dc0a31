"""Baseline of attacks on words: the words that everybody uses."""

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.scoring import best_decisions
from attacks.words.estimates import WordSetEstimate
from client.pretrained import PretrainedAlgorithm
from protocol.threat_model import ThreatModel
from protocol.view import RoundView

TEXTS = "prior_features"
"""Auxiliary texts ``(M, L)`` of token numbers, padded with 0."""


class PopularWords(Attack):
    """Baseline: the words that as many texts as the client's would have, by their frequency in auxiliary texts.

    A text has word w with probability q_w, so N texts do with ``1 - (1 - q_w)^N``; as many words as give the largest
    expected F1 are called present.

    Threat model: a server that has texts and does not look at the update.

    References:
        This project.
    """

    name = "popular-words"
    family = "words"
    baseline = True
    is_prior = True
    estimates = WordSetEstimate
    threat_model = ThreatModel(
        sees="how many texts the client reports", knows="texts of the same kind", needs=(f"auxiliary:{TEXTS}",)
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        words = max(len(value) for value in view.model.values() if value.dim() == 2)
        if isinstance(view.algorithm, PretrainedAlgorithm):  # whose table of words is frozen and no parameter
            words = max(words, view.algorithm.vocabulary)
        likely = expected_words(view, max(words, 1 + int(view.auxiliary[TEXTS].max())))
        assert likely is not None
        decisions, expected = best_decisions(likely)
        return WordSetEstimate(scores=likely, decisions=decisions, expected=expected)


def word_frequencies(view: RoundView, words: int) -> Tensor | None:
    """``(W,)`` share of the auxiliary texts that have each word, half a text more; None without texts."""
    texts = view.auxiliary.get(TEXTS)
    if texts is None or texts.dim() != 2 or texts.is_floating_point():
        return None
    once = torch.unique(torch.arange(len(texts))[:, None] * words + texts.clamp(max=words - 1)) % words
    counts: Tensor = (once.bincount(minlength=words) + 0.5).double()
    return counts / (len(texts) + 1)


def expected_words(view: RoundView, words: int) -> Tensor | None:
    """``(V, W)`` probability that each client's texts have each word, see `PopularWords`; None without texts."""
    frequency = word_frequencies(view, words)
    if frequency is None:
        return None
    likely = -torch.expm1(view.example_counts[:, None] * (-frequency.clamp(max=1 - 1e-9)).log1p())
    likely[:, 0] = 0
    return likely
