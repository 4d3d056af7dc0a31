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

    Example:
        >>> import torch
        >>> from fedleak.attacks.words import PopularWords
        >>> from fedleak.attacks.words.toy import toy
        >>> view, truth = toy()
        >>> estimate = PopularWords()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["f1"].mean()), 2)
        0.45
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
            # The vocabulary is as large as the tallest matrix of the model, which is its table of words.
            vocabulary = max(len(parameter) for parameter in view.model.values() if parameter.dim() == 2)
            if isinstance(view.algorithm, PretrainedAlgorithm):  # whose table of words is frozen and no parameter
                vocabulary = max(vocabulary, view.algorithm.vocabulary)
            largest_token = int(view.auxiliary[TEXTS].max())
            probabilities = expected_words(view, max(vocabulary, 1 + largest_token))
            if probabilities is None:
                raise ViewError("expected texts of token numbers (M, L) in the server's data, got other examples")
        else:
            probabilities = words_of_others(view, inferred_words(view, generator))
        decisions, expected = best_decisions(probabilities)
        return WordSetEstimate(scores=probabilities, decisions=decisions, expected=expected)


def inferred_words(view: RoundView, generator: torch.Generator) -> Tensor:
    """``(V, W)`` bool, the words that an attack infers of each client, each from that client's update alone.

    Raises:
        ViewError: the clients' network has neither adapters that read words nor an embedding table.
    """
    if not isinstance(view.algorithm, PretrainedAlgorithm):
        # One client at a time, so that no client's update has a part in what is inferred of another one.
        decisions = []
        for victim in range(view.victims):
            client_view = view.select(torch.tensor([victim]))
            decisions.append(TouchedRows().run(client_view, generator=generator).decisions)
        return torch.cat(decisions)
    systems, pursuits_of_clients = pursuits(view, AdapterWords.words, AdapterWords.places)
    words = torch.zeros(view.victims, systems.vocabulary, dtype=torch.bool)
    for victim, pursuit in enumerate(pursuits_of_clients):
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
        [Ney94], equation 25, for the discount.
    """
    _, message = view.distinct_messages()
    probabilities = torch.zeros(words.shape, dtype=torch.float64)
    for victim in range(view.victims):
        is_other = message != message[victim]
        holders = words[is_other].double().sum(0)  # c of each word
        occurring = holders.nonzero().flatten()
        if not len(occurring):
            raise ViewError("expected the words of other clients of the round, whose frequency is compared; got none")
        count = int(is_other.sum())  # K
        # The discount d = Q_1 / (Q_1 + 2 Q_2).
        held_once = int((holders == 1).sum())
        held_twice = int((holders == 2).sum())
        discount = held_once / (held_once + 2 * held_twice) if held_once else 0.0
        # (c - d) / K for words of others; what that takes from the S words goes to all words by their density.
        frequency = (holders - discount).clamp(min=0) / count
        frequency = frequency + discount * len(occurring) / count * _density(occurring, words.shape[1])
        # 1 - (1 - p)^N for a client with N times as many texts.
        texts = view.example_counts[victim] / view.example_counts[is_other].double().mean().clamp(min=1)
        probabilities[victim] = -torch.expm1(texts * (-frequency.clamp(max=1 - 1e-9)).log1p())
    # Word 0 is padding.
    probabilities[:, 0] = 0
    return probabilities


def _density(occurring: Tensor, vocabulary: int) -> Tensor:
    """``(W,)`` share of each number of a word, by how dense the numbers ``occurring (S,)``, ascending, are about it."""
    # Bins of equally many occurring words, so that they are narrow where words are dense.
    ends = torch.tensor([1, vocabulary])
    edges = torch.unique(torch.cat([occurring[_IN_A_BIN::_IN_A_BIN], ends]))
    bin_of_word = torch.bucketize(occurring, edges, right=True)
    counts = bin_of_word.bincount(minlength=len(edges) + 1)[1:-1].double()
    density = counts / edges.diff()
    # Each word has the density of its bin; word 0 is padding and has none.
    bin_of_number = torch.bucketize(torch.arange(1, vocabulary), edges, right=True) - 1
    shares = density[bin_of_number]
    return torch.cat([shares.new_zeros(1), shares / shares.sum()])
