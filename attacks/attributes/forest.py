"""Attributes of people by a random forest on the sizes of their updates' numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.attacks.attributes.messages import AttributeAttack, AttributePeople, blocks
from fedleak.core.history import History
from fedleak.core.ranges import PositiveInt

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

_NUMBERS = 2**28
"""Numbers of known people's messages that a forest is trained on, 1 GiB; of more, a random part of the messages."""
_AT_ONCE = 2**24
"""Numbers of messages that are normalised at a time."""
_LEAST = 1e-6
"""Least probability whose logarithm is taken: a forest can give a value none at all."""


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
        [Melis19], Algorithm 3; its program inference_attack.py for the settings.

    Example:
        >>> import torch
        >>> from fedleak.attacks.attributes import PropertyForest
        >>> from fedleak.attacks.attributes.toy import toy
        >>> view, truth = toy()
        >>> estimate = PropertyForest()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.75
    """

    name = "property-forest"
    references: ClassVar[tuple[str, ...]] = ("Unintended feature leakage, Algorithm 3",)
    cost = "one forest for each attribute, on all numbers of the known people's updates"

    trees: PositiveInt = 100
    leaf: PositiveInt = 5

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people = AttributePeople.of(view)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        # Each number gets mean 0 and variance 1 over the known people's messages; constant ones are divided by 1.
        senders, vectors = self._known_messages(view, people, generator)
        means = vectors.mean(0)
        spread = vectors.std(0, correction=0)
        spread[spread == 0] = 1
        vectors = vectors.sub_(means).div_(spread)
        forests = self._forests(people, senders, vectors, seed)
        del vectors
        # Sums of a person's probabilities over its messages.
        counts = torch.zeros(len(people.names), dtype=torch.float64)
        sums = {}
        for name in people.values:
            sums[name] = torch.zeros(len(people.names), people.classes(name), dtype=torch.float64)
        for part_senders, part in _absolute(view, people, ~people.known):
            standardised = part.sub_(means).div_(spread).numpy()
            counts.index_add_(0, part_senders, torch.ones(len(part_senders), dtype=torch.float64))
            for name, forest in forests.items():
                probabilities = torch.zeros(len(part_senders), sums[name].shape[1], dtype=torch.float64)
                probabilities[:, forest.classes_] = torch.from_numpy(np.asarray(forest.predict_proba(standardised)))
                sums[name].index_add_(0, part_senders, probabilities)
        # Log of the mean probability over that of guessing.
        evidence = {}
        for name, values in people.values.items():
            known_counts = values[values >= 0].bincount(minlength=sums[name].shape[1]).double()
            mean = sums[name] / counts.clamp(min=1)[:, None]
            guess = known_counts / known_counts.sum()
            evidence[name] = mean.clamp(min=_LEAST).log() - guess.clamp(min=_LEAST).log()
        return people.estimate(evidence)

    def _forests(
        self, people: AttributePeople, senders: Tensor, vectors: Tensor, seed: int
    ) -> dict[str, "RandomForestClassifier"]:
        """One forest for each attribute, trained on the messages of people with a known value of it."""
        from sklearn.ensemble import RandomForestClassifier

        forests = {}
        for name, values in people.values.items():
            labels = values[senders]
            has_label = labels >= 0
            training = vectors
            if not bool(has_label.all()):  # all of them without a copy
                training = vectors[has_label]
            forest = RandomForestClassifier(
                self.trees,
                min_samples_leaf=self.leaf,
                min_samples_split=max(2, self.leaf),
                random_state=seed,
            )
            forests[name] = forest.fit(training.numpy(), labels[has_label].numpy())
        return forests

    def _known_messages(
        self, view: History, people: AttributePeople, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """``(M,)`` senders of the known people's messages, and ``(M, D)`` vectors, of all or of a random part."""
        width = sum(view.model[name].numel() for name in next(view.each_part()).deltas)
        total = int(people.known[people.places(view.pseudonyms)].sum())
        most = max(self.leaf, _NUMBERS // max(width, 1))
        is_drawn = torch.zeros(total, dtype=torch.bool)
        is_drawn[torch.randperm(total, generator=generator)[:most]] = True
        senders = torch.empty(int(is_drawn.sum()), dtype=torch.int64)
        vectors = torch.empty(int(is_drawn.sum()), width)
        # Messages come a few at a time: `read` of them so far, of which `stored` were drawn.
        read = 0
        stored = 0
        for part_senders, part in _absolute(view, people, people.known):
            chosen = is_drawn[read : read + len(part_senders)]
            read += len(part_senders)
            end = stored + int(chosen.sum())
            senders[stored:end] = part_senders[chosen]
            vectors[stored:end] = part[chosen]
            stored = end
        return senders, vectors


def _absolute(view: History, people: AttributePeople, which: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Senders ``(M,)`` among some people ``(N,)``, and absolute values ``(M, D)`` of length one, a few at a time."""
    for part in view.each_part():
        senders = people.places(part.pseudonyms)
        chosen = which[senders].nonzero().flatten()
        width = sum(part.model[name].numel() for name in part.deltas)
        for few in torch.split(chosen, max(1, _AT_ONCE // width)):
            messages = part.select(few)
            columns: list[Tensor] = []
            for name in messages.deltas:
                columns += [block.float() for block in blocks(messages, name)]
            numbers = torch.cat(columns, dim=1)
            yield senders[few], torch.nn.functional.normalize(numbers.abs_(), dim=1, out=numbers)
