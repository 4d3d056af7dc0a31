"""What most tests of attacks do: run one, and give it updates that say nothing of their clients."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.estimates import Estimate
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView, View

AnEstimate = TypeVar("AnEstimate", bound=Estimate)
AView = TypeVar("AView", bound=View)


def run(attack: Attack, view: View, kind: type[AnEstimate]) -> AnEstimate:
    """The estimate of an attack, which is of the given kind."""
    estimate = attack(view, generator=generator_for(0, "attack"))
    assert isinstance(estimate, kind)
    return estimate


def plain_view(victims: int, **fields: Any) -> RoundView:
    """A view of victims who sent nothing, but for what is given."""
    nothing: dict[str, Any] = {"deltas": {}, "model": {}, "example_counts": torch.ones(victims, dtype=torch.int64)}
    return RoundView(round=0, pseudonyms=torch.arange(victims), **{**nothing, **fields})


def with_deltas(view: AView, change: Callable[[Tensor], Tensor]) -> AView:
    """The view with every parameter's deltas changed."""
    return dataclasses.replace(view, deltas={name: change(value) for name, value in view.deltas.items()})


def of_others(view: AView, step: int = 1) -> AView:
    """The view in which every client has the update of another."""
    return with_deltas(view, lambda delta: delta.roll(step, 0))


def of_noise(view: AView, seed: int = 0) -> AView:
    """The view whose updates are noise of the size of the clients'."""
    generator = generator_for(seed, "noise for updates")
    return with_deltas(view, lambda delta: delta.std() * torch.randn(delta.shape, generator=generator).to(delta))


def with_noise(view: AView, scale: float, seed: int = 0, **release: Any) -> AView:
    """The view whose clients add noise of a standard deviation, and declare it."""
    generator = generator_for(seed, "declared noise")
    noisy = with_deltas(view, lambda delta: delta + scale * torch.randn(delta.shape, generator=generator).to(delta))
    declared = Release(noise_scale=scale, parameters=tuple(view.deltas), **release)
    return dataclasses.replace(noisy, releases=(declared,))


def state(view: View) -> list[Tensor]:
    """Copies of what an attack could change of a view: deltas, model and auxiliary data."""
    return [value.clone() for part in (view.deltas, view.model, view.auxiliary) for value in part.values()]


def unchanged(view: View, before: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(state(view), before, strict=True))
