"""Rules for the classes that a client does not have at all, Decaf's second step."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attacks.composition.base import layer_change
from protocol.simulators import ClassifierSimulator
from protocol.view import ServerView

PublishedRule = Literal["published", "none"]
NullRule = Literal["published", "corrected", "tested", "none"]
Statistic = Literal["maximum", "mean"]


def published_rule(weight: Tensor, threshold: float = 0.0) -> Tensor:
    """Present where some entry of the class's row grew by more than a threshold (Algorithm 1).

    If class c is null, every step adds ``-lr mean(p_c h)`` to row c, at most 0 where the features h are not negative:
    so null implies no positive entry, for every optimizer that scales an average of such steps by positive numbers,
    and no weight decay. The converse does not hold: the row of a rare class can shrink everywhere.

    Args:
        weight: ``(V, K, F)`` change of the last layer.
        threshold: 0 for non-negative features; the paper suggests 0.001 for LeakyReLU (section V-A).

    Returns:
        ``(V, K)`` bool.
    """
    return (weight > threshold).any(2)


def row_statistics(weight: Tensor) -> dict[Statistic, Tensor]:
    """``(V, K)`` each: largest and mean entry of every row, in units of the r.m.s. entry of the client."""
    scale = weight.square().mean(dim=(1, 2)).sqrt().clamp(min=torch.finfo(weight.dtype).tiny)[:, None]
    return {"maximum": weight.amax(2) / scale, "mean": weight.mean(2) / scale}


@dataclass(frozen=True)
class CalibratedRule:
    """A threshold on a row statistic, learned from simulated clients of which it is known what they lack.

    Attributes:
        statistic: which one separated null classes best.
        threshold: present above it.
        errors: mean of the shares of null and of present simulated classes that it gets wrong.
    """

    statistic: Statistic
    threshold: float
    errors: float

    def __call__(self, weight: Tensor) -> Tensor:
        """``(V, K, F)`` -> ``(V, K)`` bool."""
        return row_statistics(weight)[self.statistic] > self.threshold


def calibrate(weight: Tensor, present: Tensor) -> CalibratedRule:
    """The corrected rule: the statistic and threshold with the smallest errors of both kinds on simulated clients.

    Null and present classes count alike, however many of each were simulated.

    Args:
        weight: ``(B, K, F)`` changes of simulated clients, with known decay removed.
        present: ``(B, K)`` what they hold.
    """
    rules = []
    for name, values in row_statistics(weight).items():
        threshold, errors = _best_threshold(values.flatten(), present.flatten())
        rules.append(CalibratedRule(name, threshold, errors))
    return min(rules, key=lambda rule: rule.errors)


def _best_threshold(values: Tensor, present: Tensor) -> tuple[float, float]:
    """The middle of the best gap between sorted values, the widest where several are as good."""
    ordered, order = values.double().sort()
    truth = present[order].double()
    below = torch.stack([truth, 1 - truth]).cumsum(1)
    missed, dropped = torch.nn.functional.pad(below, (1, 0)) / below[:, -1:].clamp(min=1)
    errors = (missed + 1 - dropped) / 2
    edges = torch.cat([ordered[:1] - 1, ordered, ordered[-1:] + 1])
    best = (errors == errors.min()).nonzero().flatten()
    widest = best[edges.diff()[best].argmax()]
    return float((edges[widest] + edges[widest + 1]) / 2), float(errors.min())


def without_decay(view: ServerView, weight: Tensor, example_counts: Tensor | None = None) -> Tensor:
    """The change of the last layer's weights, less what weight decay alone did (exact for SGD, see the learner).

    Args:
        view: what the server knows.
        weight: ``(V, K, F)``.
        example_counts: ``(V,)`` examples of each client, None for those of the view.
    """
    counts = view.example_counts if example_counts is None else example_counts
    learner = view.require(ClassifierSimulator)
    name = f"{learner.output_layer}.weight"
    return weight - learner.decay_change({name: view.model[name]}, counts)[name]


def published_present(view: ServerView, rule: PublishedRule, threshold: float) -> Tensor:
    """``(V, K)`` bool by the published rule, never empty: a client without any positive row has its largest class."""
    weight = layer_change(view).weight
    if rule == "none":
        return torch.ones(weight.shape[:2], dtype=torch.bool)
    return never_empty(published_rule(weight, threshold), weight)


def never_empty(present: Tensor, weight: Tensor) -> Tensor:
    """Gives a client that seems to have no class the one whose row grew most."""
    largest = torch.nn.functional.one_hot(weight.amax(2).argmax(1), present.shape[1]).bool()
    return torch.where(present.any(1, keepdim=True), present, largest)
