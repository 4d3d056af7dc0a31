"""Baseline of attacks on words: the words that everybody uses."""

import torch
from torch import Tensor

from fedleak.attacks.words.adapter_words import AdapterWords, pursuits
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.attacks.words.frequencies import TEXTS, expected_words
from fedleak.attacks.words.touched_rows import TouchedRows
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.scoring import best_decisions
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_IN_A_BIN = 10
"""Words of others whose numbers are taken to be equally dense."""


class PopularWords(Attack):
    """Baseline: the words that as many texts as the client's would have, by their frequency in other texts.

    A text has word w with probability q_w, so N texts do with ``1 - (1 - q_w)^N``; as many words as give the largest
    expected F1 are called present. The other texts are those that the server has (``auxiliary:prior_features``).
    Without any, they are those of the *other* clients of the round, as far as an attack infers their words from their
    own updates; the update of the client itself, or the sum that it is in, is left out. See `words_of_others`.

    Threat model: a server that has texts, or attacks other clients, and does not look at the update.

    References:
        This project.
    """

    name = "popular-words"
    family = "words"
    baseline = True
    is_prior = True
    of_others = True
    estimates = WordSetEstimate
    threat_model = ThreatModel(
        sees="how many texts the client reports",
        knows="texts of the same kind; without any, the updates of other clients",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        if TEXTS in view.auxiliary:
            words = max(len(value) for value in view.model.values() if value.dim() == 2)
            if isinstance(view.algorithm, PretrainedAlgorithm):  # whose table of words is frozen and no parameter
                words = max(words, view.algorithm.vocabulary)
            likely = expected_words(view, max(words, 1 + int(view.auxiliary[TEXTS].max())))
            if likely is None:
                raise ViewError("expected texts of token numbers (M, L) in the server's data, got other examples")
        else:
            likely = words_of_others(view, inferred_words(view, generator))
        decisions, expected = best_decisions(likely)
        return WordSetEstimate(scores=likely, decisions=decisions, expected=expected)


def inferred_words(view: RoundView, generator: torch.Generator) -> Tensor:
    """``(V, W)`` bool, the words that an attack infers of each client, each from that client's update alone.

    Raises:
        ViewError: the clients' network has neither adapters that read words nor an embedding table.
    """
    if not isinstance(view.algorithm, PretrainedAlgorithm):
        # One client at a time, so that no client's update has a part in what is inferred of another one.
        alone = [view.select(torch.tensor([victim])) for victim in range(view.victims)]
        return torch.cat([TouchedRows().run(one, generator=generator).decisions for one in alone])
    systems, found = pursuits(view, AdapterWords.words, AdapterWords.places)
    words = torch.zeros(view.victims, systems.vocabulary, dtype=torch.bool)
    for victim, pursuit in enumerate(found):
        words[victim, systems.tokens[pursuit.present]] = True
    words[:, 0] = False
    return words


def words_of_others(view: RoundView, words: Tensor) -> Tensor:
    """``(V, W)`` probability that each client's texts have each word, by the words of the clients of other messages.

    Of K others, Q_1 words are those of one of them, and Q_2 those of two. A word of c others has the probability
    ``(c - d) / K`` with ``d = Q_1 / (Q_1 + 2 Q_2)`` (absolute discounting), which leaves ``d S / K`` for words that
    none of them has, with the S words of all. Tokenizers number frequent words together, so such a word is as likely as
    the numbers of the S words are dense about its own, see `_density`. A client with N times as many texts as the
    others has a word of probability p with ``1 - (1 - p)^N``.

    Args:
        view: the clients, of which those in one sum have one message.
        words: ``(V, W)`` bool, the words of each client.

    Raises:
        ViewError: there are no other messages, or no words are inferred of their clients.

    References:
        Ney, Essen and Kneser, "On Structuring Probabilistic Dependences in Stochastic Language Modelling", Computer
        Speech and Language 1994, equation 25, for the discount.
    """
    _, message = view.distinct_messages()
    likely = torch.zeros(words.shape, dtype=torch.float64)
    for victim in range(view.victims):
        others = message != message[victim]
        held = words[others].double().sum(0)
        seen = held.nonzero().flatten()
        if not len(seen):
            raise ViewError("expected the words of other clients of the round, whose frequency is compared; got none")
        count = int(others.sum())
        once, twice = int((held == 1).sum()), int((held == 2).sum())
        discount = once / (once + 2 * twice) if once else 0.0
        chance = (held - discount).clamp(min=0) / count
        chance = chance + discount * len(seen) / count * _density(seen, words.shape[1])
        texts = view.example_counts[victim] / view.example_counts[others].double().mean().clamp(min=1)
        likely[victim] = -torch.expm1(texts * (-chance.clamp(max=1 - 1e-9)).log1p())
    likely[:, 0] = 0
    return likely


def _density(seen: Tensor, vocabulary: int) -> Tensor:
    """``(W,)`` share of each number of a word, by how dense the numbers ``seen (S,)``, ascending, are about it."""
    ends = torch.tensor([1, vocabulary])
    edges = torch.unique(torch.cat([seen[_IN_A_BIN::_IN_A_BIN], ends]))
    counts = torch.bucketize(seen, edges, right=True).bincount(minlength=len(edges) + 1)[1:-1].double()
    density = counts / edges.diff()
    shares = density[torch.bucketize(torch.arange(1, vocabulary), edges, right=True) - 1]
    return torch.cat([shares.new_zeros(1), shares / shares.sum()])
