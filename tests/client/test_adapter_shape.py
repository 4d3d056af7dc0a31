"""Adapters of another rank, of other layers or without A are refused with what they are; so are whole weights."""

from typing import Any

import pytest

from fedleak.client.adapter_shape import AdapterShape, check_adapters
from fedleak.core.errors import InputError


def shapes(*layers: str, rank: int = 4, matrices: str = "AB") -> dict[str, tuple[int, ...]]:
    sizes = {"A": (rank, 64), "B": (32, rank)}
    return {f"model.{layer}.lora_{letter}.weight": sizes[letter] for layer in layers for letter in matrices}


OWN = shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj")


def test_names_and_shapes_tell_rank_and_layers() -> None:
    found = AdapterShape.of({**OWN, "model.score.weight": (3, 64)})
    assert str(found) == "rank 4 at 4 layers (q_proj, v_proj)"
    assert found.matrices == {"lora_A", "lora_B"}
    assert str(AdapterShape.of({**shapes("q"), **shapes("v", rank=8)})) == "rank 4 and 8 at 2 layers (q, v)"


def test_the_same_adapters_next_to_a_layer_that_is_trained_too_are_accepted() -> None:
    head = {"model.score.weight": (3, 64)}
    check_adapters({**OWN, **head}, {**dict(reversed(OWN.items())), **head})
    check_adapters(shapes("q", matrices="B"), shapes("q", matrices="B"))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj", rank=8), "rank 4 at 4 .*found rank 8 at 4 .*rank"),
        (shapes("0.q_proj", "1.q_proj"), r"\(q_proj, v_proj\).*found rank 4 at 2 layers \(q_proj\).*targets"),
        (shapes("0.q_proj", "0.v_proj"), r"at 4 layers.*found rank 4 at 2 layers.*\[0\.q_proj, 0\.v_proj\]"),
        (shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj", matrices="B"), "lora_A and lora_B.*only lora_B.*both"),
        (
            {**OWN, "model.embed_tokens.weight": (9, 64)},
            "adapters alone.*1 other.*embed_tokens.*modules_to_save.*lora_",
        ),
        ({**OWN, "model.0.q_proj.bias": (64,)}, "adapters alone.*bias"),
        ({**OWN, "model.0.q_proj.lora_magnitude_vector": (64,)}, "DoRA, with 1 magnitudes.*variant lora"),
        ({"model.0.q_proj.weight": (64, 64)}, "lora_A and lora_B.*1 parameters without any.*merged.*variant none"),
        ({}, "e.g. none"),
    ],
)
def test_other_adapters_are_one_line(found: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        check_adapters(OWN, found)
    assert "\n" not in str(error.value)
