"""LAMP: texts by matching gradients, in turn with reordering words by a language model, as published."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedleak.attacks.re_identification.simulated import FEATURES
from fedleak.attacks.reconstruction.text_matching import (
    LABEL_RATE,
    Candidate,
    Distance,
    Target,
    TextMatchingAttack,
    drawn,
    mean_cosine,
    squared_and_absolute,
)
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.attack import Variants
from fedleak.core.errors import ViewError
from fedleak.core.ranges import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, UnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_BERT_LENGTH = 1.4
"""Mean length of BERT's words, for which the weight of lengths was chosen."""
_DECAY_EVERY = 50
"""Steps after which the rate decays, as published."""
_PAIRS, _WORDS = 0.7, 0.25
"""Weights of pairs of words and of single words in the language model; the rest has every word alike."""


@dataclass(frozen=True, kw_only=True)
class Lamp(TextMatchingAttack):
    """LAMP: gradient matching with a penalty on lengths, in turn with the order of words that a language model likes.

    (1) Of `starts` random texts, and then of as many orders of the best one's words, the one of least distance is
    taken. (2) Adam minimises ``distance + lengths (1.4 (|x| / l - 1))^2``, where l is the mean length of a word's
    vector, |x| that of the text's, and 1.4 that of BERT's words. (3) Every `reorder_every` steps after the first tenth,
    `orders` changes of each text are tried: two words exchanged, a word or a part moved, a beginning put at the end.
    The one of least ``distance + prior * perplexity`` is taken. (4) The texts of least loss in (2) are the answer.

    Values are those of the authors' lamp_cos.sh and, for the variant, lamp_l1l2.sh, with the rate (0.01 for BERT's
    vectors) relative to the vectors' numbers. Their language model is a GPT-2 that was trained on Wikipedia with BERT's
    words; here it counts pairs of words in the texts that the adversary has.

    Threat model: passive server, one update of one step; knows the network and the tokenizer, and texts of users, from
    which it has a language model.

    Args:
        distance: ``cosine``, or ``tag`` with `alpha`.
        alpha: weight of the absolute distance.
        lengths: weight of the penalty on lengths.
        prior: weight of the perplexity, in nats for each word.
        decay: factor of the rate every 50 steps.
        starts: random texts, and orders, among which the search starts.
        reorder_every: steps between two rounds of reordering.
        orders: changes of each text that are tried in a round.

    Variants:
        tag: the distance of TAG, with the values of lamp_l1l2.sh.
        touched-rows: only words whose vectors changed may occur.

    Raises:
        ViewError: clients do not train a whole network on texts by one step of plain gradient descent, or it has no
            vectors of places.

    References:
        [Balunovic22a], algorithm 1 and the authors' code.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import Lamp
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("short-texts")
        >>> attack = Lamp(max_iter=80, starts=5, orders=5)
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["rouge1"].mean()) > 0.5
        True
    """

    name = "lamp"
    references = ("Balunovic22a, algorithm 1",)
    threat_model = ThreatModel(
        sees="the update of the whole network",
        knows="the network, the tokenizer and texts of users",
        needs=("deltas", "model", ExampleAlgorithm, f"auxiliary:{FEATURES}"),
    )
    variants: ClassVar[Variants] = {
        "tag": {"distance": "tag", "lengths": 25.0, "prior": 60.0},
        "touched-rows": {"touched_rows": True, "references": ()},
    }

    rate: PositiveFloat = 0.2
    max_iter: PositiveInt = 2000
    distance: Literal["cosine", "tag"] = "cosine"
    alpha: NonNegativeFloat = 0.01
    lengths: NonNegativeFloat = 1.0
    prior: NonNegativeFloat = 0.2
    decay: UnitInterval = 0.89
    starts: PositiveInt = 500
    reorder_every: PositiveInt = 75
    orders: NonNegativeInt = 200

    def search(self, view: RoundView, target: Target, generator: torch.Generator) -> Candidate:
        language = PairCounts.of(view, len(target.network.words))
        distance = mean_cosine if self.distance == "cosine" else squared_and_absolute(self.alpha)
        size = float(target.network.words.norm(dim=1).mean())
        start = self.start(target, distance, size, generator)
        vectors = start.vectors.requires_grad_()
        labels = start.labels.requires_grad_()
        rates = [{"params": [vectors], "lr": self.step_size(target)}, {"params": [labels], "lr": LABEL_RATE}]
        optimizer = torch.optim.Adam(rates)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, _DECAY_EVERY, self.decay)
        best, least = start, torch.inf
        for step in range(self.max_iter):
            optimizer.zero_grad()
            too_long = _BERT_LENGTH * (vectors.norm(dim=2).mean() / size - 1)
            loss = target.loss(distance, vectors, labels, differentiable=True) + self.lengths * too_long.square()
            loss.backward()
            if float(loss.detach()) <= least:
                least = float(loss.detach())
                best = Candidate(vectors=vectors.detach().clone(), labels=labels.detach().clone())
            optimizer.step()
            schedule.step()
            if step >= self.max_iter / 10 and step % self.reorder_every == 1:
                current = Candidate(vectors=vectors.detach(), labels=labels.detach())
                reordered = self.reordered(target, distance, current, language, generator)
                vectors.data = reordered.vectors.clone()
                labels.data = reordered.labels.clone()
        return best

    def start(self, target: Target, distance: Distance, size: float, generator: torch.Generator) -> Candidate:
        """Best of random texts, then of the orders of its words."""
        best = drawn(target, size, generator)
        least = float(target.loss(distance, best.vectors, best.labels))
        for _ in range(self.starts - 1):
            other = drawn(target, size, generator)
            loss = float(target.loss(distance, other.vectors, other.labels))
            if loss < least:
                best, least = other, loss
        for _ in range(self.starts):
            order = torch.randperm(target.length, generator=generator)
            other = dataclasses.replace(best, vectors=best.vectors[:, order])
            loss = float(target.loss(distance, other.vectors, other.labels))
            if loss < least:
                best, least = other, loss
        return dataclasses.replace(best, vectors=best.vectors.clone())

    def reordered(
        self,
        target: Target,
        distance: Distance,
        candidate: Candidate,
        language: "PairCounts",
        generator: torch.Generator,
    ) -> Candidate:
        """The best of changes of each text's order, of which the first is none."""
        for sentence in range(target.sentences):
            best, least = candidate, torch.inf
            for number in range(self.orders):
                order = torch.arange(target.length)
                if number:
                    order = changed_order(target.length, number % 4, generator)
                other = candidate.permuted(sentence, order)
                loss = float(target.loss(distance, other.vectors, other.labels))
                loss += self.prior * language.perplexity(target.words(other))
                if loss < least:
                    best, least = other, loss
            candidate = best
        return candidate


def changed_order(length: int, kind: int, generator: torch.Generator) -> Tensor:
    """``(L,)`` order after a change: 0 two words exchanged, 1 a word moved, 2 a part moved, 3 a beginning put last."""
    order = torch.arange(length)
    first, second, third = torch.randint(length, (3,), generator=generator).tolist()
    if kind == 0:
        order[[first, second]] = order[[second, first]]
        return order
    if kind == 3:
        return order.roll(-first)
    start, end = (first, first + 1) if kind == 1 else (min(first, second), max(first, second) + 1)
    rest = torch.cat([order[:start], order[end:]])
    to = third % (len(rest) + 1)
    return torch.cat([rest[:to], order[start:end], rest[to:]])


@dataclass(frozen=True)
class PairCounts:
    """Language model that counts words and pairs of neighbours in texts.

    Attributes:
        words: ``(V,)`` probability of each word.
        pairs: ``(P,)`` numbers of pairs that occur, ascending: V times the first word plus the second.
        following: ``(P,)`` probability of the second word after the first.
    """

    words: Tensor
    pairs: Tensor
    following: Tensor

    @classmethod
    def of(cls, view: RoundView, vocabulary: int) -> "PairCounts":
        """The model of the adversary's texts.

        Raises:
            ViewError: it has other examples.
        """
        texts = view.auxiliary[FEATURES]
        if texts.dim() != 2 or texts.is_floating_point():
            raise ViewError("expected texts as word numbers, got other examples")
        words = torch.bincount(texts[texts > 0], minlength=vocabulary).double()
        is_pair = (texts[:, :-1] > 0) & (texts[:, 1:] > 0)
        first_words = texts[:, :-1][is_pair]
        pairs, counts = torch.unique(first_words * vocabulary + texts[:, 1:][is_pair], return_counts=True)
        starts = torch.bincount(first_words, minlength=vocabulary).double()
        return cls(words / words.sum(), pairs, counts / starts[pairs // vocabulary])

    def perplexity(self, texts: Tensor) -> float:
        """Mean of ``-log p(word | word before)`` in nats, over texts ``(N, L)``."""
        vocabulary = len(self.words)
        following = texts[:, 1:]
        pairs = texts[:, :-1] * vocabulary + following
        of_pairs = torch.zeros(pairs.shape, dtype=torch.float64)
        if len(self.pairs):
            at = torch.searchsorted(self.pairs, pairs).clamp(max=len(self.pairs) - 1)
            of_pairs = torch.where(self.pairs[at] == pairs, self.following[at], 0.0)
        single = self.words[following]
        probability = _PAIRS * of_pairs + _WORDS * single + (1 - _PAIRS - _WORDS) / vocabulary
        return float(-probability.log().mean())
