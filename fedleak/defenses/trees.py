"""Defences of clients that send decision trees: Hessians withheld, fewer digits, noise on leaves."""

import abc
import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from fedleak.defenses.base import Defense, Update
from fedleak_recorder.shard_check import TREES
from fedleak_recorder.tree_recorder import BASE_SCORE
from fedleak_recorder.trees.forest import GAIN, HESSIAN, LEFT, PADDING, THRESHOLD, WEIGHT

_OF_AVERAGES = (
    *("train_locally", "penalty", "change_examples", "change_gradients", "willing", "protect", "server_sees"),
    *("contributors", "review", "recorded_facts"),
)
"""Hooks of defences that take an update for numbers that the server averages."""
_MOST_DIGITS = 9
"""Largest number of decimal digits: nine write every number of single precision exactly."""


class TreeDefense(Defense, abc.ABC):
    """Base class of defences that change numbers of the nodes of trees and leave the order of the nodes.

    Example:
        >>> import torch
        >>> from fedleak.client.trees import TREES
        >>> from fedleak.defenses.base import Update
        >>> from fedleak.defenses.trees import TreeDefense
        >>> class NoGains(TreeDefense):
        ...     '''Clients send no gains.'''
        ...
        ...     def changed(self, trees, generator):
        ...         trees[..., 6] = 0.0
        ...         return trees
        >>> leaf = torch.tensor([-1.0, -1, 0, 0.5, 0.5, 3, 9, 0])
        >>> sent = NoGains().protect(Update({TREES: leaf.expand(1, 1, 1, 8)}), lambda _: torch.Generator())
        >>> sent.deltas[TREES][0, 0, 0, 6]
        tensor(0.)
    """

    @abc.abstractmethod
    def changed(self, trees: Tensor, generator: torch.Generator) -> Tensor:
        """The trees ``(T, N, 8)`` of a client as it sends them, see `fedleak.client.tree_layout`.

        Args:
            trees: a copy of the client's own, which may be changed in place; lines of padding must stay.
            generator: of the client and the round.
        """

    def changed_base_score(self, base_score: Tensor) -> Tensor:
        """The base score ``(1,)`` of a client as it sends it."""
        return base_score

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """Changes the trees of every client.

        Raises:
            InputError: clients send no trees.
        """
        name = type(self).__name__
        require(TREES in update.deltas, f"clients that send trees, for {name}", ", ".join(update.deltas), "Remove it.")
        deltas = dict(update.deltas)
        sent = []
        for client, trees in enumerate(deltas[TREES]):
            sent.append(self.changed(trees.clone(), generators(client)))
        if sent:
            deltas[TREES] = torch.stack(sent)
        if BASE_SCORE in deltas and len(deltas[BASE_SCORE]):
            deltas[BASE_SCORE] = torch.stack([self.changed_base_score(score) for score in deltas[BASE_SCORE]])
        return dataclasses.replace(update, deltas=deltas)


class MaskedHessians(TreeDefense):
    """Clients send 1 in place of the sum of Hessians of each node, as some of XGBoost's federated modes do.

    It hides nothing where the learning rate and a lambda above 0 are public: the weights alone say how many rows a node
    has, see `fedleak.attacks.trees.tree_counts`. Without lambda, it hides how two leaves of a class divide theirs.

    References:
        This project, docs/audit/trees.md.
    """

    def changed(self, trees: Tensor, generator: torch.Generator) -> Tensor:
        return masked_hessians(trees)


class RoundedTrees(TreeDefense):
    """Clients send thresholds, weights, Hessians, gains and the base score in few decimal digits.

    A base score above one half is rounded by its distance from 1, so that it stays a probability.

    Args:
        digits: significant decimal digits.

    Raises:
        InputError: more than 9 digits, which all numbers of single precision have.

    Example:
        >>> import torch
        >>> leaf = torch.tensor([-1.0, -1, 0, 0.1234, 0.1234, 5678, 0, 0])
        >>> RoundedTrees(digits=2).changed(leaf.reshape(1, 1, 8), torch.Generator())[0, 0, 3:6]
        tensor([1.2000e-01, 1.2000e-01, 5.7000e+03])

    References:
        This project.
    """

    def __init__(self, *, digits: PositiveInt) -> None:
        require(digits <= _MOST_DIGITS, f"RoundedTrees.digits up to {_MOST_DIGITS}", digits, "3 is common.")
        self.digits = digits

    def changed(self, trees: Tensor, generator: torch.Generator) -> Tensor:
        for field in (THRESHOLD, WEIGHT, HESSIAN, GAIN):
            trees[..., field] = self._rounded(trees[..., field])
        return trees

    def changed_base_score(self, base_score: Tensor) -> Tensor:
        is_near_one = (base_score > 0.5) & (base_score < 1)
        return torch.where(is_near_one, 1 - self._rounded(1 - base_score), self._rounded(base_score))

    def _rounded(self, numbers: Tensor) -> Tensor:
        # In double precision, so that the powers of ten are exact.
        exact = numbers.double()
        magnitude = exact.abs().clamp(min=torch.finfo(torch.float32).tiny).log10().floor()
        unit = 10.0 ** (magnitude - (self.digits - 1))
        return ((exact / unit).round() * unit).to(numbers)


class NoisyLeaves(TreeDefense):
    """Clients clip the values of leaves, add Laplace noise to them, and send nothing else that sums over rows.

    A leaf's value, which is the learning rate times its weight, becomes ``clamp(v, -clip, clip) + Laplace(scale)``.
    Hessians are masked, and gains and the weights of splits are 0. Columns, thresholds and the base score are sent as
    they are, and they are chosen on the rows too: no differential privacy is claimed. If all else of one tree stayed
    the same without a row, it would change one value by at most ``2 * clip``, which the noise hides with an epsilon
    of ``2 * clip / scale``.

    Args:
        clip: largest value of a leaf.
        scale: of the Laplace noise, in the same unit.

    References:
        [Dwork14], section 3.3, the Laplace mechanism.
    """

    def __init__(self, *, clip: PositiveFloat, scale: NonNegativeFloat) -> None:
        self.clip = clip
        self.scale = scale

    def changed(self, trees: Tensor, generator: torch.Generator) -> Tensor:
        is_leaf = trees[..., LEFT] == -1
        # Laplace noise is the difference of two exponential draws.
        draws = torch.rand((2, *is_leaf.shape), generator=generator, dtype=torch.float64)
        exponential = -torch.log1p(-draws)
        noise = self.scale * (exponential[0] - exponential[1])
        values = (trees[..., THRESHOLD].clamp(-self.clip, self.clip) + noise).to(trees)
        trees = masked_hessians(trees)
        trees[..., THRESHOLD] = torch.where(is_leaf, values, trees[..., THRESHOLD])
        trees[..., WEIGHT] = torch.where(is_leaf, values, 0.0)
        trees[..., GAIN] = 0.0
        return trees


def masked_hessians(trees: Tensor) -> Tensor:
    """``(..., N, 8)`` trees whose nodes have Hessians of 1, as some senders mask them.

    Example:
        >>> import torch
        >>> masked_hessians(torch.tensor([[-1.0, -1, 0, 0.5, 0.5, 3, 0, 0], [-2, 0, 0, 0, 0, 0, 0, 0]]))[:, 5]
        tensor([1., 0.])
    """
    masked = trees.clone()
    masked[..., HESSIAN] = (trees[..., LEFT] != PADDING).to(trees.dtype)
    return masked


def check_of_trees(defenses: Sequence[Defense]) -> None:
    """Refuses defences that take trees for numbers that the server averages.

    Raises:
        InputError: a defence changes updates or the training, and is no `TreeDefense`.

    Example:
        >>> from fedleak.defenses import Clip
        >>> from fedleak.defenses.trees import check_of_trees
        >>> check_of_trees([Clip(norm=1.0)])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        fedleak_recorder.errors.InputError: expected defences of trees...
    """
    for defense in defenses:
        changes_averages = any(defense.overrides(hook) for hook in _OF_AVERAGES)
        require(
            isinstance(defense, TreeDefense) or not changes_averages,
            "defences of trees: MaskedHessians, RoundedTrees, NoisyLeaves, or a TreeDefense of yours",
            f"{type(defense).__name__}, which changes numbers that a server averages",
            "A forest appends trees and averages nothing: remove it.",
        )
