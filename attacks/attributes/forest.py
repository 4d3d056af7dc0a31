"""Attributes of people by a random forest on the sizes of their updates' numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.attacks.attributes.messages import AttributeAttack, People, blocks
from fedleak.core.history import History
from fedleak.core.ranges import PositiveInt

_NUMBERS = 2**28
"""Numbers of known people's messages that a forest is trained on, 1 GiB; of more, a random part of the messages."""
_AT_ONCE = 2**24
"""Numbers of messages that are normalised at a time."""
_LEAST = 1e-6


@dataclass(frozen=True, kw_only=True)
class PropertyForest(AttributeAttack):
    """Property inference of Melis et al.: a random forest on the absolute values of the updates.

    As in the authors' published program, the vectors are normalised to length one and each number to mean 0 and
    variance 1, and the forest has 100 trees with five examples or more in a leaf and in a node that is split. There the
    examples are updates that the adversary computes from data of its own; here they are the updates of people whose
    attributes the server knows. One forest is trained on the messages of all rounds, as in Algorithm 3; the
    probabilities of a person's messages are averaged. The vectors of the known people are in memory together, at most
    1 GiB of them.

    Threat model: passive server that sees each update, under a name that stays, and knows the attributes of some of the
    people; nobody is asked about whose attributes it knows.

    Args:
        trees: number of trees.
        leaf: least number of messages in a leaf, and in a node that is split.

    References:
        L. Melis, C. Song, E. De Cristofaro and V. Shmatikov, "Exploiting Unintended Feature Leakage in Collaborative
        Learning", IEEE S&P 2019, arXiv:1805.04049, Algorithm 3; its program inference_attack.py for the settings.
    """

    name = "property-forest"
    references: ClassVar[tuple[str, ...]] = ("Unintended feature leakage, Algorithm 3",)
    cost = "one forest for each attribute, on all numbers of the known people's updates"

    trees: PositiveInt = 100
    leaf: PositiveInt = 5

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        from sklearn.ensemble import RandomForestClassifier

        people = People.of(view)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        senders, vectors = self._known_messages(view, people, generator)
        means, spread = vectors.mean(0), vectors.std(0, correction=0)
        spread[spread == 0] = 1
        vectors = vectors.sub_(means).div_(spread)
        forests, sums = {}, {}
        for name, values in people.values.items():
            held = values[senders]
            forest = RandomForestClassifier(
                self.trees, min_samples_leaf=self.leaf, min_samples_split=max(2, self.leaf), random_state=seed
            )
            whose = held >= 0
            own = vectors if bool(whose.all()) else vectors[whose]  # all of them without a copy
            forests[name] = forest.fit(own.numpy(), held[whose].numpy())
            sums[name] = torch.zeros(len(people.names), people.classes(name), dtype=torch.float64)
        del vectors
        counts = torch.zeros(len(people.names), dtype=torch.float64)
        for place, part in _absolute(view, people, ~people.known):
            asked = part.sub_(means).div_(spread).numpy()
            counts.index_add_(0, place, torch.ones(len(place), dtype=torch.float64))
            for name, forest in forests.items():
                chances = torch.zeros(len(place), sums[name].shape[1], dtype=torch.float64)
                chances[:, forest.classes_] = torch.from_numpy(np.asarray(forest.predict_proba(asked)))
                sums[name].index_add_(0, place, chances)
        evidence = {}
        for name, values in people.values.items():
            shares = values[values >= 0].bincount(minlength=sums[name].shape[1]).double()
            mean = sums[name] / counts.clamp(min=1)[:, None]
            guess = shares / shares.sum()
            evidence[name] = mean.clamp(min=_LEAST).log() - guess.clamp(min=_LEAST).log()
        return people.estimate(evidence)

    def _known_messages(self, view: History, people: People, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``(M,)`` senders of the known people's messages, and ``(M, D)`` vectors, of all or of a random part."""
        width = sum(view.model[name].numel() for name in next(view.each_part()).deltas)
        total = int(people.known[people.places(view.pseudonyms)].sum())
        most = max(self.leaf, _NUMBERS // max(width, 1))
        kept = torch.zeros(total, dtype=torch.bool)
        kept[torch.randperm(total, generator=generator)[:most]] = True
        senders, vectors = torch.empty(int(kept.sum()), dtype=torch.int64), torch.empty(int(kept.sum()), width)
        seen = used = 0
        for place, part in _absolute(view, people, people.known):
            chosen = kept[seen : seen + len(place)]
            seen, end = seen + len(place), used + int(chosen.sum())
            senders[used:end], vectors[used:end] = place[chosen], part[chosen]
            used = end
        return senders, vectors


def _absolute(view: History, people: People, which: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Senders ``(M,)`` among some people ``(N,)``, and absolute values ``(M, D)`` of length one, a few at a time."""
    for part in view.each_part():
        place = people.places(part.pseudonyms)
        chosen = which[place].nonzero().flatten()
        width = sum(part.model[name].numel() for name in part.deltas)
        for few in torch.split(chosen, max(1, _AT_ONCE // width)):
            own = part.select(few)
            numbers = torch.cat([block.float() for name in own.deltas for block in blocks(own, name)], dim=1)
            yield place[few], torch.nn.functional.normalize(numbers.abs_(), dim=1, out=numbers)
