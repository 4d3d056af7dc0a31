"""Baseline of attacks on words: the words that everybody uses."""

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.scoring import best_decisions
from attacks.words.adapter_words import AdapterWords, pursuits
from attacks.words.estimates import WordSetEstimate
from attacks.words.frequencies import TEXTS, expected_words
from attacks.words.touched_rows import TouchedRows
from client.pretrained import PretrainedAlgorithm
from protocol.errors import ViewError
from protocol.threat_model import ThreatModel
from protocol.view import RoundView


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

    Of K others, Q_1 have a word that no other of them has, Q_2 words are those of two, and U is the number of words of
    all of them together. A client's words are then among theirs with probability
    ``C = 1 - Q_1 / U * (K - 1) Q_1 / ((K - 1) Q_1 + 2 Q_2)`` (sample coverage of incidences); the words of c others
    have the probability ``C c / K``, and the ``(1 - C) U / K`` words that are new are equally likely among all others.
    A client with N times as many texts as the others has a word of probability p with ``1 - (1 - p)^N``.

    Args:
        view: the clients, of which those in one sum have one message.
        words: ``(V, W)`` bool, the words of each client.

    Raises:
        ViewError: there are no other messages, or no words are inferred of their clients.

    References:
        Chao and Jost, "Coverage-based rarefaction and extrapolation", Ecology 2012; Chao et al., "Rarefaction and
        extrapolation with Hill numbers", Ecological Monographs 2014, for incidences.
    """
    _, message = view.distinct_messages()
    likely = torch.zeros(words.shape, dtype=torch.float64)
    for victim in range(view.victims):
        others = message != message[victim]
        held = words[others].double().sum(0)
        total = float(held.sum())
        if not total:
            raise ViewError("expected the words of other clients of the round, whose frequency is compared; got none")
        count = int(others.sum())
        once, twice = int((held == 1).sum()), int((held == 2).sum())
        repeated = (count - 1) * once + 2 * twice
        coverage = 1 - once / total * (count - 1) * once / repeated if repeated else 1.0
        new = (1 - coverage) * total / count / max(int((held == 0).sum()), 1)
        # A word of one other is no less likely than one of none, also where nothing was seen twice.
        chance = (coverage * held / count).clamp(min=new, max=1 - 1e-9)
        texts = view.example_counts[victim] / view.example_counts[others].double().mean().clamp(min=1)
        likely[victim] = -torch.expm1(texts * (-chance).log1p())
    likely[:, 0] = 0
    return likely
