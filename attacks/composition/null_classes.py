"""Rules for null classes, the classes of which a client has no example (Decaf's second step)."""

from typing import Literal

import torch
from torch import Tensor

from attacks.composition.base import layer_change
from client.network import ClassifierAlgorithm
from protocol.view import RoundView

PublishedRule = Literal["published", "none"]


def published_rule(weight: Tensor, threshold: float = 0.0) -> Tensor:
    """``(V, K)`` True where an entry of the class's row of ``weight (V, K, F)`` grew above a threshold (Algorithm 1).

    Each step adds ``-lr mean(p_c h)`` to the row of a null class c, which is at most 0 for non-negative features h. So
    a null class has no positive entry, for every optimizer that scales an average of such steps by positive numbers and
    uses no weight decay. The converse does not hold: all entries of a rare class can shrink. The threshold is 0 for
    non-negative features; the paper suggests 0.001 for LeakyReLU (section V-A), of changes divided by the learning rate
    (equation 4).
    """
    return (weight > threshold).any(2)


def published_present(view: RoundView, rule: PublishedRule, threshold: float) -> Tensor:
    """``(V, K)`` bool by the published rule; a client without any positive entry has the class whose row grew most.

    The threshold is for the change divided by the learning rate (equation 4).
    """
    weight = layer_change(view).weight
    if rule == "none":
        return torch.ones(weight.shape[:2], dtype=torch.bool)
    scaled = threshold and threshold * view.require(ClassifierAlgorithm).learning_rate
    return with_largest_class_if_empty(published_rule(weight, scaled), weight)


def with_largest_class_if_empty(present: Tensor, weight: Tensor) -> Tensor:
    """Adds the class whose row grew most to clients without any present class."""
    largest = torch.nn.functional.one_hot(weight.amax(2).argmax(1), present.shape[1]).bool()
    return torch.where(present.any(1, keepdim=True), present, largest)
