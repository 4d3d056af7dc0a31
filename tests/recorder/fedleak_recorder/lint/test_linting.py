"""The lint names every planted leak of the rebuilt messages, and nothing of their honest twins."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import WAYS_OUT
from fedleak_recorder.lint.linting import linted, message_checks
from fedleak_recorder.lint.settings import Settings
from tests.lint_toys import FIXTURES, Fixture, network

SEEDS = range(3)


def kinds_of(parts: Any, **options: Any) -> set[str]:
    return {finding.kind for finding in linted(AnyMessage.of(parts, **options))}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_a_planted_leak_is_named_and_its_honest_twin_is_not(fixture: Fixture) -> None:
    for seed in SEEDS:
        assert fixture.kinds <= kinds_of(fixture.leaking(seed))
        assert kinds_of(fixture.honest(seed)) == set()


def test_every_kind_but_growing_is_planted() -> None:
    planted = frozenset[str]().union(*(fixture.kinds for fixture in FIXTURES))
    assert planted == WAYS_OUT.keys() - {"grows"}


def test_checks_are_found_by_looking() -> None:
    assert len(message_checks()) >= 10


def test_a_minimum_decides_which_statistics_are_of_few() -> None:
    message = AnyMessage.of({"age_count": 7, "age_sum": 300.5})
    assert linted(message) == []
    assert [finding.kind for finding in linted(message, Settings(minimum=10))] == ["few-people"]


def test_findings_of_a_kind_are_bounded() -> None:
    sentence = "a sentence of a document that says more than a setting does, word by word"
    findings = linted(AnyMessage.of({f"part {number}": sentence for number in range(200)}))
    assert len(findings) == 21
    assert "180 further parts" in findings[-1].what


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_table_is_named_in_every_type_that_holds_it(kind: Any) -> None:
    ages = np.random.default_rng(0).integers(18, 90, (40, 3)).astype(kind)
    assert "raw-rows" in kinds_of({"weight": ages})
    assert kinds_of({"weight": np.random.default_rng(0).normal(size=(40, 3)).astype(kind)}) == set()


def test_buffers_of_transformers_are_no_data() -> None:
    places = np.arange(49)
    # As in Swin: the difference of the places of two patches, from 0 on.
    relative = (places[:, None] // 7 - places[None] // 7 + 6) * 13 + places[:, None] % 7 - places[None] % 7 + 6
    buffers = {
        "position_ids": np.arange(512)[None],
        "relative_position_index": relative,
        "attn.bias": np.tril(np.ones((1, 1, 32, 32))),
        "inv_freq": (1 / 10_000 ** (np.arange(0, 64, 2) / 64)).astype("f"),
        "alphas_cumprod": np.cumprod(1 - np.linspace(1e-4, 0.02, 200)),
        "num_batches_tracked": np.array(3),
    }
    assert kinds_of({"arrays": {**network(np.random.default_rng(0)), **buffers}}) == set()


def test_sparse_updates_are_no_data_and_keys_beside_values_are() -> None:
    draws = np.random.default_rng(0)
    places = np.sort(draws.choice(5000, 60, replace=False))
    values = draws.normal(size=60).astype("f")
    assert kinds_of({"arrays": {"indices": places, "values": values}, "num-examples": 60}) == set()
    assert "raw-rows" in kinds_of({"arrays": {"indices": places, "values": np.round(np.abs(values) * 90)}})


def test_a_bias_as_long_as_the_data_is_that_of_a_layer() -> None:
    update = network(np.random.default_rng(0))
    assert kinds_of({"arrays": update}, examples=32) == set()
    assert kinds_of({"arrays": {**update, "losses": np.random.default_rng(1).random(57)}}, examples=57) == {
        "per-record"
    }


def test_small_whole_numbers_are_no_histogram_by_chance() -> None:
    update = {"weight": np.ones((2, 3), "f"), "bias": np.ones(2, "f")}
    assert kinds_of({"arrays": update}, examples=2) == set()


def test_ones_of_a_normalisation_layer_are_no_histogram() -> None:
    layers = {"norm.weight": np.ones(64, "f"), "norm.bias": np.zeros(64, "f"), "fc.weight": np.eye(64, dtype="f")}
    assert kinds_of({"arrays": layers}, examples=64) == set()
    cells = np.array([1, 2, 30, 31])
    assert "few-people" in kinds_of({"cells of age": cells}, examples=64)


def test_numbers_under_a_mask_are_no_data_and_keys_are() -> None:
    draws = np.random.default_rng(0)
    for modulus, kind in ((2**16, np.uint16), (2**32, np.uint32), (2**62, np.int64)):
        assert kinds_of({"vector": draws.integers(0, modulus, 4096, dtype=kind)}) == set()
        assert kinds_of({"matrix": draws.integers(0, modulus, (64, 64), dtype=kind)}) == set()
    assert "raw-rows" in kinds_of({"vector": draws.integers(0, 10**9, 4096)})
    assert "identifiers" in kinds_of({"vector": 10**9 + draws.permutation(4096)})


def test_rows_of_an_embedding_with_their_places_are_a_sparse_update() -> None:
    draws = np.random.default_rng(0)
    places = np.sort(draws.choice(9000, 40, replace=False))
    rows = draws.normal(size=(40, 16)).astype("f")
    assert kinds_of({"embedding": {"indices": places, "values": rows}}) == set()
    assert "raw-rows" in kinds_of({"embedding": {"indices": places, "values": np.round(np.abs(rows) * 90)}})


def test_spectra_are_sorted_and_no_data() -> None:
    values = np.sort(np.random.default_rng(0).exponential(size=30))[::-1]
    assert kinds_of({"singular_values_": values}) == set()
    assert kinds_of({"times": values}) == {"raw-rows"}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_table_with_missing_values_is_named(kind: Any) -> None:
    draws = np.random.default_rng(0)
    rows = draws.integers(18, 90, (60, 6)).astype(kind)
    rows[draws.random(rows.shape) < 0.05] = np.nan
    assert "raw-rows" in kinds_of({"weight": rows})
    assert "raw-rows" in kinds_of({"weight": rows[:, 0]})
    assert kinds_of({"weight": np.full((60, 6), np.nan, kind)}) == set()


def test_whole_numbers_with_a_most_frequent_value_are_data_if_none_can_be_below_zero() -> None:
    draws = np.random.default_rng(0)
    ages = np.round(draws.normal(50, 12, (60, 4))).astype(int)
    assert kinds_of({"weight": ages}) == {"raw-rows"}
    assert kinds_of({"weight": ages.tolist()}) == {"raw-rows"}
    assert kinds_of({"weight": ages - 50}) == set()
    # As a quantiser with a zero point makes them: the smallest weight is 0, the largest 255.
    weight = draws.normal(size=(60, 40))
    quantised = np.round((weight - weight.min()) / np.ptp(weight) * 255).astype(np.uint8)
    assert kinds_of({"weight": quantised}) == kinds_of({"weight": quantised.tolist()}) == set()


def test_pixels_scaled_by_a_factor_are_named() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 12)).astype("f")
    assert kinds_of({"weight": pixels * np.float32(1 / 255)}) == {"raw-rows"}


def test_findings_that_are_left_out_are_as_sure_as_they_were() -> None:
    extremes = {f"age_{number}_max": 80.5 for number in range(30)}
    findings = linted(AnyMessage.of({**extremes, "hist": [1, 2, 30]}))
    assert findings[0].how_sure == "likely"
    assert {finding.how_sure for finding in findings[1:]} == {"possible"}


def test_findings_are_frozen() -> None:
    finding = linted(AnyMessage.of({"patient_id": 17}))[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        finding.what = ""  # type: ignore[misc]
