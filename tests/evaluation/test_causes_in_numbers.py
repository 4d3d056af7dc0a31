"""How updates were made is measured from their numbers, and honest updates show nothing of it."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedleak.core.view import RoundView
from fedleak.evaluation.causes import measured_causes
from fedleak.evaluation.causes_in_numbers import found_in_numbers, levels, significant_bits
from tests.attacks.runs import of_noise, plain_view, with_deltas
from tests.composition_toys import views
from tests.foreign_toys import view as foreign_view


def one_step() -> RoundView:
    (view,), _ = views()
    return view


def in_type(kind: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda delta: delta.to(kind).float()


def quantised(bits: int) -> Callable[[Tensor], Tensor]:
    """Each client's tensor to multiples of a step of its own."""

    def change(delta: Tensor) -> Tensor:
        step = delta.abs().flatten(1).amax(1) / (2 ** (bits - 1) - 1)
        step = step.reshape(-1, *[1] * (delta.dim() - 1)).clamp(min=1e-30)
        rounded: Tensor = (delta / step).round() * step
        return rounded

    return change


def largest(share: float) -> Callable[[Tensor], Tensor]:
    def change(delta: Tensor) -> Tensor:
        least = delta.abs().flatten(1).quantile(1 - share, dim=1)
        return delta * (delta.abs() >= least.reshape(-1, *[1] * (delta.dim() - 1)))

    return change


def noisy(scale: float) -> Callable[[Tensor], Tensor]:
    return lambda delta: delta + scale * torch.randn(delta.shape, generator=torch.Generator().manual_seed(0))


CHANGES = {
    "bfloat16": (in_type(torch.bfloat16), "precision", "significant_bits", 8),
    "float16": (in_type(torch.float16), "precision", "significant_bits", 11),
    "4 bits": (quantised(4), "quantised", "bits", 4),
    "8 bits": (quantised(8), "quantised", "bits", 8),
    "top 5 %": (largest(0.05), "sparse", "zeros", pytest.approx(0.95, abs=0.02)),
    "noise of 1e-5": (noisy(1e-5), "small-noise", "noise_scale", pytest.approx(1e-5, rel=0.3)),
}


@pytest.mark.parametrize(("change", "cause", "number", "value"), CHANGES.values(), ids=CHANGES)
def test_what_was_done_to_updates_is_named(
    change: Callable[[Tensor], Tensor], cause: str, number: str, value: float
) -> None:
    view = with_deltas(one_step(), change)
    (finding,) = found_in_numbers([view])
    assert finding.cause == cause
    assert finding.measured[number] == value
    assert cause in {one.cause for one in measured_causes([view], seed=0)}


@pytest.mark.parametrize("view", [one_step(), foreign_view(), of_noise(one_step())])
def test_updates_as_they_were_computed_show_nothing(view: RoundView) -> None:
    assert found_in_numbers([view]) == []


@pytest.mark.parametrize("decayed", [1e-4, 1e-2])
def test_weight_decay_that_is_not_declared_is_no_noise(decayed: float) -> None:
    view = one_step()
    deltas = {name: delta - decayed * view.model[name] for name, delta in view.deltas.items()}
    (finding,) = found_in_numbers([dataclasses.replace(view, deltas=deltas)])
    assert finding.cause == "decay"
    assert finding.measured["decayed"] == pytest.approx(decayed, rel=0.1)


def test_the_first_step_of_an_adapter_is_named() -> None:
    names = {f"layer.lora_{part}.weight": (8, 16) if part == "A" else (16, 8) for part in "AB"}
    random = {name: torch.randn(3, *shape) for name, shape in names.items()}
    model = {name: torch.randn(shape) for name, shape in names.items()}
    first, second = names
    sent = plain_view(3, deltas=random | {first: torch.zeros(3, 8, 16)}, model=model | {second: torch.zeros(16, 8)})
    (finding,) = found_in_numbers([sent])
    assert finding.cause == "first-step"
    later = dataclasses.replace(sent, deltas=random, model=model)
    assert found_in_numbers([later]) == []


def test_significant_bits_and_levels_of_a_few_numbers() -> None:
    assert significant_bits(torch.tensor([0.0, 1.0, 0.75, -2.5])) == 3
    assert significant_bits(torch.tensor([0.1])) >= 23
    assert levels(0.37 * torch.arange(-10, 11)) == 10
    assert levels(torch.randn(1000)) is None
    assert levels(torch.tensor([1.0, 2.0, 3.0])) is None
