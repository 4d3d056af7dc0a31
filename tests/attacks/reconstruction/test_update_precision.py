"""The errors of an update's numbers, found from the numbers."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.reconstruction.update_precision import common_step, number_errors
from fedleak.core.seeding import generator_for

NEURONS, PIXELS = 32, 48


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator_for(0, "rows"), dtype=torch.float64)


def parameters() -> Tensor:
    return (0.1 * drawn(NEURONS, PIXELS + 1)).float().double()


def quantised(values: Tensor, bits: int) -> Tensor:
    step = values.abs().max() / (2 ** (bits - 1) - 1)
    rounded: Tensor = (values / step).round() * step
    return rounded.float().double()


def by_tensor(rows: Tensor, bits: int) -> Tensor:
    return torch.cat([quantised(rows[:, :-1], bits), quantised(rows[:, -1:], bits)], dim=1)


@pytest.mark.parametrize("bits", [4, 6, 8, 10, 12, 14, 16])
def test_the_step_of_quantised_numbers_is_found(bits: int) -> None:
    values = quantised(drawn(NEURONS, PIXELS), bits)
    expected = float(values.abs().max()) / (2 ** (bits - 1) - 1)
    assert common_step(values.flatten()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("bits", [8, 16])
def test_the_step_of_numbers_between_the_smallest_and_the_largest_is_found(bits: int) -> None:
    values = drawn(NEURONS, PIXELS)
    low, high = values.min(), values.max()
    step = (high - low) / (2**bits - 1)
    moved = (((values - low) / step).round() * step + low).float().double()
    assert common_step(moved.flatten()) == pytest.approx(float(step), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_not_quantised_have_no_step(dtype: torch.dtype) -> None:
    assert common_step(drawn(NEURONS, PIXELS).to(dtype).double().flatten()) == 0.0
    assert common_step(drawn(NEURONS, PIXELS).to(torch.bfloat16).double().flatten()) == 0.0


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
def test_errors_of_quantised_numbers_are_covered(bits: int) -> None:
    exact = 1e-3 * drawn(NEURONS, PIXELS + 1)
    rows = by_tensor(exact, bits)
    errors = number_errors(rows, parameters())
    assert bool(((rows - exact).abs() <= errors).all())
    assert float(errors.median()) < 4 * float(exact.abs().max()) / 2 ** (bits - 1)


@pytest.mark.parametrize("bits", [4, 8])
def test_errors_of_numbers_with_a_step_for_each_neuron_are_covered(bits: int) -> None:
    exact = 1e-3 * drawn(NEURONS, PIXELS + 1)
    rows = torch.cat([torch.cat([quantised(row[None, :-1], bits) for row in exact]), exact[:, -1:]], dim=1)
    assert bool(((rows - exact).abs() <= number_errors(rows, parameters())).all())


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 24), (torch.float16, 11), (torch.bfloat16, 8)])
def test_errors_follow_from_the_digits_in_use_not_from_the_type(dtype: torch.dtype, digits: int) -> None:
    exact = drawn(NEURONS, PIXELS + 1)
    rows = exact.to(dtype).double()
    errors = number_errors(rows, torch.zeros_like(rows))
    assert bool(((rows - exact).abs() <= errors).all())
    assert bool((errors <= 4 * 2.0**-digits * rows.abs()).all())


def test_differences_of_parameters_have_the_rounding_of_the_parameters() -> None:
    before, change = parameters(), 1e-4 * drawn(NEURONS, PIXELS + 1)
    rows = (before + change).float().double() - before
    errors = number_errors(rows, before)
    assert bool(((rows - change).abs() <= errors).all())
    assert float(errors.median()) > 10 * 2.0**-24 * float(rows.abs().median())


def test_numbers_that_were_left_out_are_known_up_to_the_smallest_that_is_there() -> None:
    exact = 1e-3 * drawn(NEURONS, PIXELS + 1)
    least = exact.abs().flatten().sort().values[exact.numel() // 2]
    rows = exact * (exact.abs() >= least)
    errors = number_errors(rows, parameters())
    assert bool(((rows - exact).abs() <= errors)[:, :-1].all())


@pytest.mark.parametrize("excited", [1, 3, NEURONS])
@pytest.mark.parametrize("levels", [17, 256])
def test_one_image_is_not_taken_for_quantised_or_sparse_numbers(levels: int, excited: int) -> None:
    """Each row is a multiple of the image, and so has few different values and zeros."""
    image = (torch.rand(PIXELS, generator=generator_for(0, "image")) * (levels - 1)).round() * (255 // (levels - 1))
    image[: PIXELS // 2] = 0
    record = torch.cat([image.double() / 255, torch.ones(1)])
    rows = (1e-3 * drawn(NEURONS, 1) * record).float().double()
    rows[excited:] = 0
    errors = number_errors(rows, torch.zeros_like(rows))
    assert bool((errors <= 8 * 2.0**-24 * rows.abs()).all())
