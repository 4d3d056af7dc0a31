"""The memory adapter excites a unit for one of many texts, at its last place, and its rows are read by nobody else."""

import pytest
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.server.memory_adapter import FirstAdapter, MemoryAdapter, place_functionals
from tests.memory_toys import fine_tuned, memory_model, states

RECORDS = 12
pytestmark = pytest.mark.integration


def excited(model: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """``(N, L, U)`` units that are above 0."""
    layer = FirstAdapter.of(model)
    return inputs @ model[layer.down].T @ model[layer.up].T > 0


def test_a_unit_is_excited_by_one_text_at_its_last_place() -> None:
    """Of other texts than those that the thresholds are from."""
    found = excited(memory_model(RECORDS), states(seed=7)).double()
    assert float(found[:, -1].mean()) == pytest.approx(1 / RECORDS, rel=0.3)
    assert float(found[:, :-1].mean()) < 0.1 / RECORDS


def test_only_the_first_adapter_is_changed() -> None:
    before, made = fine_tuned().first_model(), memory_model(RECORDS)
    layer = FirstAdapter.of(before)
    assert {name for name in made if not torch.equal(made[name], before[name])} == {layer.down, layer.up}
    half = memory_model(RECORDS, strength=0.5)
    torch.testing.assert_close(half[layer.up], made[layer.up] / 2)


def test_functionals_of_places_are_least_squares() -> None:
    """By hand: of inputs that are unit vectors by place, they are the wanted values."""
    known = torch.eye(3, 5, dtype=torch.float64).expand(4, -1, -1)
    found = place_functionals(known, torch.tensor([2.0, 3.0, 9.0], dtype=torch.float64))
    wanted = torch.tensor([[0.0, 2.0], [0.0, 3.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found[:3], wanted, rtol=1e-3, atol=1e-9)
    assert not bool(found[3:].any())


@pytest.mark.parametrize(
    ("known", "word"), [(torch.zeros(20, 5, 96), "texts"), (torch.zeros(0, 0, 0), "texts"), (None, "positions")]
)
def test_what_does_not_fit_is_refused_in_one_line(known: Tensor | None, word: str) -> None:
    model = fine_tuned().first_model()
    if known is None:  # states without positions
        known = torch.randn(100, 5, 96, generator=torch.Generator().manual_seed(0))
    with pytest.raises(InputError, match=word):
        MemoryAdapter(records=RECORDS).manipulated(model, known, torch.arange(2), generator=torch.Generator())


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(InputError, match="lora_A"):
        FirstAdapter.of({"weight": torch.zeros(2, 2)})
