"""Adapters of another rank, of other layers or without A are refused with what they are; so are whole weights."""

from typing import Any

import pytest

from fedleak.client.adapter_shape import AdapterShape, check_adapters, check_one_adapter
from fedleak.client.adapters import AdapterOptions
from fedleak.core.errors import InputError


def shapes(*layers: str, rank: int = 4, matrices: str = "AB") -> dict[str, tuple[int, ...]]:
    sizes = {"A": (rank, 64), "B": (32, rank)}
    return {f"model.{layer}.lora_{letter}.weight": sizes[letter] for layer in layers for letter in matrices}


LORA = AdapterOptions()
OWN = shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj")


def test_names_and_shapes_tell_rank_and_layers() -> None:
    found = AdapterShape.of({**OWN, "model.score.weight": (3, 64)})
    assert str(found) == "rank 4 at 4 layers (q_proj, v_proj)"
    assert found.matrices == {"lora_A", "lora_B"}
    assert str(AdapterShape.of({**shapes("q"), **shapes("v", rank=8)})) == "rank 4 and 8 at 2 layers (q, v)"


def test_the_same_adapters_next_to_a_layer_that_is_trained_too_are_accepted() -> None:
    head = {"model.score.weight": (3, 64)}
    check_adapters({**OWN, **head}, {**dict(reversed(OWN.items())), **head}, LORA)
    check_adapters(shapes("q", matrices="B"), shapes("q", matrices="B"), LORA)


def test_magnitudes_are_those_of_dora_and_no_matrices() -> None:
    magnitudes = {"model.0.q_proj.lora_magnitude_vector": (64,)}
    assert AdapterShape.of({**OWN, **magnitudes}) == AdapterShape.of(OWN)
    check_adapters({**OWN, **magnitudes}, {**OWN, **magnitudes}, AdapterOptions(variant="dora"))
    with pytest.raises(InputError, match=r"magnitudes.*found none.*variant lora"):
        check_adapters({**OWN, **magnitudes}, OWN, AdapterOptions(variant="dora"))


def test_adapters_of_two_names_are_one_line() -> None:
    check_one_adapter(["q.lora_A.mine.weight", "q.lora_B.mine.weight"])
    with pytest.raises(InputError, match=r"2 adapters of one network: default, mine.*adapter_name=NAME"):
        check_one_adapter(["q.lora_A.default.weight", "q.lora_A.mine.weight"])


def test_what_is_said_and_not_recorded_is_one_line() -> None:
    with pytest.raises(InputError, match=r"1 parameters next to.*lm_head.*Record what clients train"):
        check_adapters({**OWN, "model.lm_head.weight": (9, 64)}, OWN, LORA)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj", rank=8), "rank 4 at 4 .*found rank 8 at 4 .*rank"),
        (shapes("0.q_proj", "1.q_proj"), r"\(q_proj, v_proj\).*found rank 4 at 2 layers \(q_proj\).*targets"),
        (shapes("0.q_proj", "0.v_proj"), r"at 4 layers.*found rank 4 at 2 layers.*\[0\.q_proj, 0\.v_proj\]"),
        (shapes("0.q_proj", "0.v_proj", "1.q_proj", "1.v_proj", matrices="B"), "lora_A and lora_B.*only lora_B.*both"),
        (
            {**OWN, "model.embed_tokens.weight": (9, 64)},
            r"adapters alone.*1 other.*embed_tokens.*whole \[embed_tokens\].*modules_to_save",
        ),
        ({**OWN, "model.0.k_proj.bias": (64,)}, "adapters alone.*bias all"),
        ({**OWN, "model.0.q_proj.base_layer.bias": (64,)}, "adapters alone.*bias lora_only"),
        ({**OWN, "model.0.q_proj.lora_magnitude_vector": (64,)}, "DoRA, with 1 magnitudes.*variant dora"),
        ({**OWN, "model.0.q_proj.lora_B.bias": (64,)}, "biases of their own.*lora_bias.*without them"),
        ({**OWN, "model.embed.lora_embedding_A": (4, 9)}, "table of words.*without lora_embedding_"),
        ({**shapes("0.q_proj"), **shapes("0.v_proj", rank=8)}, "one rank.*rank 4 and 8.*rank_pattern"),
        ({"model.0.q_proj.weight": (64, 64)}, "lora_A and lora_B.*1 parameters without any.*merged.*variant none"),
        ({}, "e.g. none"),
    ],
)
def test_other_adapters_are_one_line(found: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        check_adapters(OWN, found, LORA)
    assert "\n" not in str(error.value)
