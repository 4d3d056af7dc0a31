"""Rows that are multiples of each other: by hand, in models made to leak, and not in honest ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedleak.server.imprint import Imprint
from fedleak.server.model_manipulation import ModelManipulation
from fedleak.server.sparse_imprint import SparseImprint
from fedleak.server.suppression import Suppression
from fedleak_guard import RefusedError
from fedleak_guard.checks.received_rows import share
from fedleak_recorder.arrays import Array
from tests.guard_toys import message as toy_message
from tests.guard_toys import site

UNITS, WIDTH = 64, 40


def drawn(rows: int = UNITS, columns: int = WIDTH, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype("f")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_share_of_multiples(dtype: str) -> None:
    weight = drawn().astype(dtype)
    assert share(weight, zeros=True) == 0
    weight[5] = -2 * weight[60]
    assert share(weight, zeros=True) == 2 / UNITS
    weight[[1, 2, 3]] = weight[1] * np.array([[1], [4], [0.5]], dtype)
    assert share(weight, zeros=True) == 5 / UNITS
    assert share(np.repeat(weight[:1], UNITS, axis=0), zeros=True) == 1


def test_rows_of_zeros_count_unless_a_weight_starts_as_zeros() -> None:
    weight = drawn()
    weight[:16] = 0
    assert share(weight, zeros=False) == 16 / UNITS
    assert share(0 * weight, zeros=False) == 0
    assert share(0 * weight, zeros=True) == 1


def test_rows_that_only_nearly_agree_are_no_multiples() -> None:
    weight = np.repeat(drawn(1), UNITS, axis=0)
    assert share(weight * (1 + 1e-3 * drawn()), zeros=True) == 0


@pytest.mark.parametrize("shape", [(4, WIDTH), (UNITS, 4), (0, WIDTH), (UNITS, 0)])
def test_small_weights_have_no_share(shape: tuple[int, int]) -> None:
    assert share(np.ones(shape, "f"), zeros=True) == 0


def test_convolutions_of_nine_numbers_have_no_multiples() -> None:
    assert max(share(drawn(2048, 9, seed).reshape(2048, 1, 3, 3), zeros=True) for seed in range(20)) == 0


def sent(manipulation: ModelManipulation) -> dict[str, Array]:
    """A manipulated model, as the second client of a sum gets it."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"0.weight": (UNITS, WIDTH), "0.bias": (UNITS,), "2.weight": (32, UNITS), "2.bias": (32,)}
    model = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    made = manipulation.sent(model, torch.rand(400, WIDTH, generator=draw), torch.arange(4), generator=draw)
    return {name: value[int(made.index[1])].numpy() for name, value in made.models.items()}


MANIPULATED: dict[str, Any] = {
    "imprint": (Imprint(), "0.weight"),
    "sparse imprint": (SparseImprint(participants=4), "0.weight"),
    "suppression": (Suppression(participants=4), "2.weight"),
}


@pytest.mark.parametrize("name", MANIPULATED)
def test_models_made_to_leak_have_a_large_share(name: str) -> None:
    manipulation, weight = MANIPULATED[name]
    assert share(sent(manipulation)[weight], zeros=True) > 0.9


def test_a_received_model_with_multiples_is_refused_at_the_defaults(tmp_path: Path) -> None:
    guard, policy = site(tmp_path), tmp_path / "policy.yaml"
    policy.write_text(f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: '*'}}]\n")
    model, honest = sent(MANIPULATED["imprint"][0]), {"0.weight": drawn(), "0.bias": np.zeros(UNITS, "f")}
    change = {name: 0.01 * drawn(seed=9)[:, 0] if value.ndim == 1 else drawn(seed=8) for name, value in honest.items()}
    guard.release(toy_message(sent=change, received=honest))
    with pytest.raises(RefusedError, match=r"received-rows: a share of 1 of the rows of the received '0\.weight'"):
        guard.release(toy_message(1, sent=change, received=model))
    policy.write_text(f"{policy.read_text()}limits: {{received-rows: 1}}\n")
    guard.release(toy_message(1, sent=change, received=model))
