"""Messages of federated trees, as frameworks send them, become a recording that fedleak reads."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak.client.tree_layout import tree_count
from fedleak.client.trees import TreesAlgorithm
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak_recorder import InputError, TreeRecorder
from fedleak_recorder.trees import read_forest
from tests.tree_toys import as_ubj, model_values

PARAMETERS = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.5, "lambda": 2}
Values = dict[str, Any]


def recorder(folder: Path, **options: Any) -> TreeRecorder:
    given = {"features": 5, "rounds": 3, "clients_per_round": 2, "key": b"k" * 16, **options}
    return TreeRecorder(folder / "recording", PARAMETERS, **given)


def joined(*models: Values) -> Values:
    """The first model with the trees of the others behind its own."""
    whole = copy.deepcopy(models[0])
    for model in models[1:]:
        trees = model["learner"]["gradient_booster"]["model"]["trees"]
        whole["learner"]["gradient_booster"]["model"]["trees"] += trees
    return whole


def text(values: Values) -> bytes:
    return json.dumps(values).encode()


FIRST = [model_values((2,), seed=1), model_values((3,), seed=2)]
SECOND = [model_values((1,), seed=3), model_values((0,), seed=4)]


def check(folder: Path) -> None:
    """The recording holds both rounds of bagging."""
    recording = Recording(folder / "recording")
    algorithm = recorded_learner(recording)
    assert isinstance(algorithm, TreesAlgorithm)
    assert (algorithm.eta, algorithm.reg_lambda, algorithm.depth) == (0.5, 2.0, 3)
    views = list(recording.views())
    assert [view.deltas["trees"].shape for view in views] == [(2, 1, 15, 8)] * 2
    assert [view.model["trees"].shape for view in views] == [(6, 15, 8)] * 2
    assert [tree_count(view.model["trees"]) for view in views] == [0, 2]
    for view, messages in zip(views, (FIRST, SECOND), strict=True):
        expected = {read_forest(message).padded(1, 15, where="").tobytes() for message in messages}
        assert {trees.numpy().tobytes() for trees in view.deltas["trees"]} == expected
    forest = read_forest(joined(*FIRST)).padded(6, 15, where="")
    assert np.array_equal(views[1].model["trees"].numpy(), forest)
    assert views[0].deltas["base_score"].flatten().tolist() == pytest.approx([0.35, 0.35])


def test_a_loop_of_ones_own_with_bytes(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        first = {"a": (text(FIRST[0]), 10), "b": (as_ubj(FIRST[1]), 20)}
        recording.round(0, b"", first, records={"a": np.zeros((10, 5)), "b": np.ones((20, 5))})
        recording.round(1, text(joined(*FIRST)), {"a": (text(SECOND[0]), 10), "b": (SECOND[1], 20)})
    check(tmp_path)


def test_clients_that_send_the_whole_model(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        recording.round(0, None, {"a": (text(FIRST[0]), 10), "b": (text(FIRST[1]), 20)})
        whole = [text(joined(*FIRST, model)) for model in SECOND]
        recording.round(1, text(joined(*FIRST)), {"a": (whole[0], 10), "b": (whole[1], 20)})
    check(tmp_path)


def test_arrays_of_bytes_as_flower_sends_them(tmp_path: Path) -> None:
    def array(values: Values) -> list[np.ndarray[Any, Any]]:
        return [np.frombuffer(text(values), np.uint8)]

    with recorder(tmp_path) as recording:
        empty = [np.frombuffer(b"", np.uint8)]
        recording.round(1, empty, {"a": (array(FIRST[0]), 10), "b": ({"0": array(FIRST[1])[0]}, 20)})
        recording.round(2, array(joined(*FIRST)), {"a": (array(SECOND[0]), 10), "b": (array(SECOND[1]), 20)})
    check(tmp_path)


def test_lists_of_updates_as_nvflare_sends_them(tmp_path: Path) -> None:
    def data(values: Values) -> Values:
        return {"model_data": bytearray(text(values))}

    with recorder(tmp_path) as recording:
        recording.round(0, {}, {"a": (data(FIRST[0]), 10), "b": (data(FIRST[1]), 20)})
        updates = {"model_data": [bytearray(text(model)) for model in FIRST]}
        recording.round(1, updates, {"a": (data(SECOND[0]), 10), "b": (data(SECOND[1]), 20)})
    check(tmp_path)


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (b"\x80\x04.", "pickle"),
        (b"", "model"),
        ([np.zeros(3, np.float32)], "bytes"),
        (7, "model"),
        (model_values((4,)), "nodes"),
        (model_values((1, 1)), "trees"),
        (model_values((1,), features=6), "features"),
    ],
)
def test_other_messages_are_refused_and_nothing_is_written(tmp_path: Path, message: Any, word: str) -> None:
    with recorder(tmp_path) as recording:
        with pytest.raises(InputError, match=word):
            recording.round(0, b"", {"a": (message, 10)})
        recording.round(0, b"", {"a": (text(FIRST[0]), 10)})
    assert Recording(tmp_path / "recording").rounds == [0]


@pytest.mark.parametrize("options", [{"features": 0}, {"rounds": True}, {"trees": "1"}, {"clients_per_round": 10**9}])
def test_other_sizes_are_refused(tmp_path: Path, options: Values) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        recorder(tmp_path, **options)


def test_parameters_are_those_of_xgboost(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_depth"):
        TreeRecorder(tmp_path, {"max_depth": 0}, features=5, rounds=1, clients_per_round=1)
    with pytest.raises(InputError, match="eta"):
        TreeRecorder(tmp_path, {"eta": "fast"}, features=5, rounds=1, clients_per_round=1)
    with pytest.raises(InputError, match="eta"):
        TreeRecorder(tmp_path, {"eta": float("nan")}, features=5, rounds=1, clients_per_round=1)
    with pytest.raises(InputError, match="objective"):
        TreeRecorder(tmp_path, {"objective": "count:poisson"}, features=5, rounds=1, clients_per_round=1)


def test_whole_models_of_few_trees_are_not_taken_for_new_trees(tmp_path: Path) -> None:
    with recorder(tmp_path, trees=4) as recording:
        recording.round(0, None, {"a": (text(FIRST[0]), 10), "b": (text(FIRST[1]), 20)})
        # Three trees, of which the client grew one: fewer than the four that it may grow.
        recording.round(1, text(joined(*FIRST)), {"a": (text(joined(*FIRST, SECOND[0])), 10)})
    second = list(Recording(tmp_path / "recording").views())[1]
    assert tree_count(second.deltas["trees"][0]) == 1


def test_trees_deeper_than_declared_are_refused(tmp_path: Path) -> None:
    parameters = {**PARAMETERS, "max_depth": 1}
    recording = TreeRecorder(tmp_path / "out", parameters, features=5, rounds=3, clients_per_round=2)
    with recording, pytest.raises(InputError, match="splits below the root"):
        recording.round(0, b"", {"a": (text(model_values((2,), seed=1)), 10)})


@pytest.mark.parametrize("wrong", [{"booster": "dart"}, {"process_type": "update"}, {"monotone_constraints": "(1,0)"}])
def test_choices_that_no_attack_knows_of_are_refused(wrong: Values, tmp_path: Path) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        TreeRecorder(tmp_path / "out", wrong, features=5, rounds=1, clients_per_round=1)
    # None is a parameter that is left out.
    left_out = dict.fromkeys(wrong)
    TreeRecorder(tmp_path / "out", left_out, features=5, rounds=1, clients_per_round=1).close()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"alpha": 1}, {"reg_alpha": "0.5"}, {"scale_pos_weight": 3.0}, {"max_delta_step": 1}),
        *({"num_parallel_tree": 4}, {"alpha": float("nan")}),
    ],
)
def test_parameters_that_no_attack_knows_of_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name} of [01]; found"):
        TreeRecorder(tmp_path / "out", wrong, features=4, rounds=1, clients_per_round=1)
    harmless = {"alpha": 0, "scale_pos_weight": 1}
    TreeRecorder(tmp_path / "out", harmless, features=4, rounds=1, clients_per_round=1).close()
