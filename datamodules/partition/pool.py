"""Pool of examples that are assigned to clients, held back or split off in whole groups.

An example belongs to a group, e.g. the photographs of one skin lesion, by default to a group of its own. A pool is
shuffled once, assigned from its front and held back from its end, so that an assignment with given sizes does not
depend on what is held back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import InputError


@dataclass(frozen=True)
class Pool:
    """Examples in the order of their assignment.

    Attributes:
        examples: ``(n,)`` int64 numbers of the examples.
        labels: ``(n,)`` int64 classes.
        groups: ``(n,)`` int64 groups; examples of one group are consecutive.
        class_names: name of every class.
    """

    examples: Tensor
    labels: Tensor
    groups: Tensor
    class_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.examples)

    def select(self, selected: Tensor) -> "Pool":
        """The examples at `selected`, positions or a mask."""
        return Pool(self.examples[selected], self.labels[selected], self.groups[selected], self.class_names)


def shuffled_pool(
    labels: Tensor, *, class_names: Sequence[str], generator: torch.Generator, groups: Tensor | None = None
) -> Pool:
    """Pool of all examples, group after group in random order.

    Args:
        labels: ``(n,)`` int64 classes.
        class_names: name of every class.
        generator: source of the order.
        groups: ``(n,)`` int64 groups; None if every example is one.
    """
    # Without groups, each example is one by itself.
    group = torch.arange(len(labels))
    if groups is not None:
        group = torch.unique(groups, return_inverse=True)[1]
    count = int(group.max()) + 1 if len(group) else 0
    class_of_group = torch.zeros(count, dtype=torch.int64).scatter_(0, group, labels)
    is_alike = class_of_group[group] == labels
    if not is_alike.all():
        example = int((~is_alike).nonzero()[0])
        raise InputError(
            expected="groups of one class each",
            found=f"a group with example {example} of another class",
            way_out="Group examples that share a label.",
        )
    rank_of_group = torch.randperm(count, generator=generator)
    order = rank_of_group[group].argsort(stable=True)
    return Pool(order, labels[order], group[order], class_names)


def hold_back(pool: Pool, per_class: int, *, purpose: str) -> tuple[Tensor, Pool]:
    """Takes examples of every class from the end of the pool, and removes their whole groups from it.

    Args:
        pool: the examples.
        per_class: number k of examples of each of the K classes.
        purpose: their purpose, for errors.

    Returns:
        ``(K, k)`` numbers of the examples, where a smaller k gives the first columns of a larger one, and the other
        examples.
    """
    last_of_classes = []
    for number in range(len(pool.class_names)):
        positions = (pool.labels == number).nonzero().flatten()
        last_of_classes.append(positions.flip(0)[:per_class])
    for number, positions in enumerate(last_of_classes):
        if len(positions) < per_class:
            raise too_few(pool, number, needed=per_class, there=len(positions), purpose=purpose)
    taken = torch.stack(last_of_classes)
    # No other example of their groups may go to a client.
    rest = pool.select(~torch.isin(pool.groups, pool.groups[taken.flatten()]))
    return pool.examples[taken], rest


def split_off(pool: Pool, fraction: float) -> tuple[Tensor, Tensor]:
    """Two parts of a pool with the same class proportions, up to whole groups.

    Returns:
        Ascending numbers of the examples of the first part and of the second.
    """
    is_second = torch.zeros(len(pool), dtype=torch.bool)
    for number in range(len(pool.class_names)):
        positions = (pool.labels == number).nonzero().flatten()
        # A group is in the second part if it begins there.
        is_second[positions] = group_begins(pool.groups[positions]) < fraction * len(positions)
    return pool.examples[~is_second].sort().values, pool.examples[is_second].sort().values


def group_begins(groups: Tensor) -> Tensor:
    """``(n,)`` position at which each example's group begins."""
    is_begin = groups.diff(prepend=groups[:1] - 1) != 0
    return torch.where(is_begin, torch.arange(len(groups)), 0).cummax(0).values


def too_few(pool: Pool, number: int, *, needed: int, there: int, purpose: str) -> InputError:
    """Error for a class with too few examples."""
    return InputError(
        expected=f"{needed} examples of class {number} ({pool.class_names[number]}) for {purpose}",
        found=f"{there}",
        way_out="Give clients fewer examples, or set fewer apart.",
    )
