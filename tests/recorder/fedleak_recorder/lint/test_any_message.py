"""Parts of any message: nested, in bytes, and bounded."""

import io
import json

import numpy as np
import pytest

from fedleak_recorder.errors import InputError
from fedleak_recorder.lint.any_message import MOST_PARTS, AnyMessage
from fedleak_recorder.lint.linting import linted


def test_parts_are_sorted_by_what_they_are() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6.0).reshape(2, 3))
    message = AnyMessage.of(
        {"a": [buffer.getvalue(), b"\1\2"], "m": {"loss": 0.5, "list": [1, 2, 3], "name": "adam", "none": None}}
    )
    assert message.arrays["a/0"].shape == (2, 3)
    assert message.contents == {"a/1": b"\1\2"}
    assert message.lists == {"m/list"}
    assert message.texts == {"m/name": "adam"}
    assert message.numbers == {"m/loss": 0.5}


def test_json_in_bytes_is_read_as_its_parts() -> None:
    content = json.dumps({"learner": {"base_score": "0.25", "counts": [1, 2]}}).encode()
    message = AnyMessage.of({"0": np.frombuffer(content, np.uint8)})
    assert message.texts == {"0/learner/base_score": "0.25"}
    assert message.contents["0"] == content


def test_json_in_a_text_is_what_it_holds() -> None:
    message = AnyMessage.of({"m": '{"a": 123, "list": [1, 2, 3]}', "broken": "{not JSON"})
    assert message.numbers == {"m/a": 123}
    assert message.lists == {"m/list"}
    assert message.texts == {"broken": "{not JSON"}


def test_a_mapping_of_cells_is_a_list() -> None:
    message = AnyMessage.of({"hist": {0: 3, 1: 0, 2: 7}})
    assert message.arrays["hist"].tolist() == [3, 0, 7]


def people(count: int) -> list[dict[str, object]]:
    """Rows of a table, one mapping each, with a cell that has no value."""
    draws = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for number in range(count):
        age = int(draws.integers(18, 90))
        weight = round(float(draws.normal(70, 12)), 1)
        rows.append({"age": age, "sex": "fm"[number % 2], "weight": None if number == 3 else weight})
    return rows


@pytest.mark.parametrize("count", [8, 40])
def test_a_list_of_records_is_a_table(count: int) -> None:
    for content in (people(count), json.dumps(people(count)), json.dumps({"a": {"b": people(count)}}).encode()):
        message = AnyMessage.of({"m": content})
        (table,) = message.arrays.values()
        assert table.shape == (count, 2)
        assert np.isnan(table).sum() == 1
        assert message.numbers == {}
        assert [finding.kind for finding in linted(message) if finding.kind == "raw-rows"] == ["raw-rows"]


@pytest.mark.parametrize(
    "records",
    [
        [{"epoch": epoch, "loss": round(2.0 / (1 + epoch), 3), "accuracy": 0.9} for epoch in range(20)],
        [{"client": f"site-{number}", "accuracy": number / 12, "num_examples": 30 + number} for number in range(12)],
        [{"name": f"layer{number}", "units": 2**number, "activation": "relu"} for number in range(10)],
        [{"lr": 0.1 * 0.9**number, "weight_decay": 0.01, "params": [number, 7]} for number in range(12)],
        [{"key": f"k{number}", "value": number} for number in range(9)],
    ],
)
def test_lists_of_metrics_and_settings_are_no_tables(records: list[dict[str, object]]) -> None:
    assert linted(AnyMessage.of({"m": records})) == []


@pytest.mark.parametrize("name", ["num-examples", "num_examples", "NumExamples", "meta/NUM_STEPS_CURRENT_ROUND"])
def test_the_number_of_examples_is_known_by_its_name(name: str) -> None:
    assert AnyMessage.of({"metrics": {name: 30}}).examples == 30
    assert AnyMessage.of({"metrics": {name: 30}}, examples=9).examples == 9
    assert AnyMessage.of({"metrics": {"loss": 30}}).examples is None


def test_damaged_arrays_of_numpy_stay_bytes() -> None:
    content = b"\x93NUMPY\1\0\x76\0{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    assert AnyMessage.of({"a": content}).contents == {"a": content}


def test_too_many_parts_and_levels_are_refused() -> None:
    with pytest.raises(InputError, match="parts"):
        AnyMessage.of({str(number): 1.5 for number in range(MOST_PARTS + 1)})
    nested: object = 1
    for _ in range(30):
        nested = {"a": nested}
    with pytest.raises(InputError, match="levels"):
        AnyMessage.of({"a": nested})
    with pytest.raises(InputError, match="real numbers"):
        AnyMessage.of({"a": object()})
