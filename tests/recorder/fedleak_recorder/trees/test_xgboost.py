"""Models of XGBoost become arrays, and whatever is no such model is refused."""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedleak.client import tree_layout
from fedleak_recorder.errors import InputError
from fedleak_recorder.trees import forest, read_forest
from tests.tree_toys import as_ubj, model_values

Change = Callable[[dict[str, Any]], object]


def test_both_formats_give_the_same_arrays() -> None:
    values = model_values()
    from_json = read_forest(json.dumps(values).encode())
    from_ubj = read_forest(as_ubj(values))
    assert from_json.trees.shape == (3, 7, 8)
    assert np.array_equal(from_json.trees, from_ubj.trees)
    assert np.array_equal(from_json.trees, read_forest(values).trees)
    assert from_json.base_score == from_ubj.base_score == np.float32(0.35)
    assert (from_json.features, from_json.objective) == (5, "binary:logistic")


def test_the_layout_is_that_of_the_clients() -> None:
    names = ("LEFT", "RIGHT", "FEATURE", "THRESHOLD", "WEIGHT", "HESSIAN", "GAIN", "DEFAULT_LEFT", "FIELDS", "PADDING")
    assert [getattr(forest, name) for name in names] == [getattr(tree_layout, name) for name in names]


def test_nodes_are_numbered_level_by_level_without_what_was_cut_off() -> None:
    values = model_values((2,))
    expected = read_forest(values)
    tree = values["learner"]["gradient_booster"]["model"]["trees"][0]
    # The same tree with its nodes in another order, and one that no split leads to.
    order = [0, 5, 6, 4, 2, 3, 1]
    place = {node: number for number, node in enumerate(order)}
    for name, column in list(tree.items()):
        if isinstance(column, list) and len(column) == 7:
            moved = [column[node] for node in order]
            if name in ("left_children", "right_children"):
                moved = [place.get(child, -1) for child in moved]
            tree[name] = [*moved, 1]
    tree["split_type"][-1] = 0
    tree["split_indices"][-1] = 2**32 - 1
    assert np.array_equal(read_forest(values).trees, expected.trees)


@pytest.mark.integration
@pytest.mark.parametrize("options", [{}, {"gamma": 2.0, "tree_method": "exact"}, {"grow_policy": "lossguide"}])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_the_arrays_predict_what_xgboost_predicts(options: dict[str, Any], objective: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 6)).astype(np.float32)
    labels = (rows[:, 0] + rows[:, 1] * rows[:, 2] > 0.3).astype(np.float32)
    rows[::9, 2] = np.nan
    matrix = xgboost.DMatrix(rows, labels)
    booster = xgboost.train({"objective": objective, "max_depth": 5, "nthread": 1, **options}, matrix, 8)
    trees = read_forest(bytes(booster.save_raw("json")))
    assert np.array_equal(trees.trees, read_forest(booster.save_raw("ubj")).trees)
    start = trees.base_score
    if objective == "binary:logistic":
        start = np.log(start / (1 - start))
    margins = tree_layout.margins(torch.from_numpy(trees.trees), torch.from_numpy(rows)).numpy() + start
    assert np.abs(margins - booster.predict(matrix, output_margin=True)).max() < 1e-5
    leaves = booster.predict(matrix, pred_leaf=True)
    ours = torch.stack([tree_layout.leaves_of(torch.from_numpy(tree), torch.from_numpy(rows)) for tree in trees.trees])
    for theirs, our in zip(leaves.T, ours.numpy(), strict=True):
        pairs = {*zip(theirs.tolist(), our.tolist(), strict=True)}
        assert len(pairs) == len(set(theirs.tolist())) == len(set(our.tolist()))


def _tree(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = values["learner"]["gradient_booster"]["model"]["trees"][0]
    return tree


def _set(path: str, value: Any) -> Change:
    """A change that sets one value of the model."""

    def change(values: dict[str, Any]) -> None:
        *parts, last = path.split("/")
        for part in parts:
            values = values[int(part)] if isinstance(values, list) else values[part]
        values[int(last) if isinstance(values, list) else last] = value

    return change


_FIRST = "learner/gradient_booster/model/trees/0"
_PARAMETERS = "learner/learner_model_param"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (_set("learner/gradient_booster/name", "dart"), "dropout"),
        (_set("learner/objective/name", "rank:ndcg"), "loss"),
        (_set(f"{_PARAMETERS}/num_class", "3"), "one score"),
        (_set(f"{_PARAMETERS}/num_target", "2"), "one score"),
        (_set(f"{_PARAMETERS}/base_score", "[1.0E-1,2.0E-1]"), "base_score"),
        (_set(f"{_PARAMETERS}/base_score", "[1.5E0]"), "probability"),
        (_set(f"{_PARAMETERS}/num_feature", "99999999999999"), "num_feature"),
        (_set(f"{_FIRST}/split_type/0", 1), "categorical"),
        (_set(f"{_FIRST}/categories_nodes", [0]), "categorical"),
        (_set(f"{_FIRST}/tree_param/size_leaf_vector", "3"), "one score"),
        (_set(f"{_FIRST}/left_children/1", 0), "child"),
        (_set(f"{_FIRST}/left_children/1", 5), "child"),
        (_set(f"{_FIRST}/left_children/1", 10**6), "child"),
        (_set(f"{_FIRST}/left_children/1", -1), "child"),
        (_set(f"{_FIRST}/split_indices/0", 5), "columns"),
        (_set(f"{_FIRST}/base_weights", [1.0]), "numbers"),
        (_set(f"{_FIRST}/base_weights/0", "1"), "numbers"),
        (_set(f"{_FIRST}/base_weights/0", 1e300), "precision"),
        (_set(f"{_FIRST}/base_weights/0", 10**30), "JSON"),
        (_set(f"{_PARAMETERS}/base_score", "1E39"), "precision"),
        (_set("learner/gradient_booster/model/gbtree_model_param", {"num_parallel_tree": "4"}), "one by one"),
        (_set("learner/objective/reg_loss_param", {"scale_pos_weight": "3"}), "scale_pos_weight"),
        (_set("learner/gradient_booster/model/trees", {}), "trees"),
    ],
)
def test_what_no_layout_holds_is_refused(change: Change, word: str) -> None:
    values = copy.deepcopy(model_values())
    change(values)
    with pytest.raises(InputError, match=word):
        read_forest(json.dumps(values))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"tree\nversion=v4\n", "LightGBM"),
        (b"CBM1\x00", "CatBoost"),
        (b"\x80\x04\x95", "pickle"),
        (b"binf", "old"),
        (b"", "XGBoost"),
        (b"{}", "learner"),
        (b'{"learner": NaN}', "NaN"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[" * 10**6, "XGBoost"),
        (b'{"a":' * 10**5, "levels"),
        (b'{"":[' + b"[]," * (3 * 10**6) + b"1]}", "values"),
        (b'{"":[' + b"{}," * (19 * 10**5) + b"1]}", "bytes of memory"),
        (b'{"":"' + b"a" * 2**26 + b'"}', "bytes"),
        (b"{L" + b"\x7f" * 8, "more bytes"),
        (b"{i\x01a[$Z#L" + b"\x7f" * 8, "numbers"),
        (b"{i\x01a[$d#L" + b"\x00" * 4 + b"\x7f" * 4, "more bytes"),
        (b"{i\x01a[#L" + b"\x00" * 4 + b"\x7f" * 4, "entries"),
        (b"{i\x01a" + b"[" * 10**6, "levels"),
        (b"{i\x01a[" + b"Z" * (3 * 10**5), "values"),
    ],
)
def test_hostile_files_are_refused(content: bytes, word: str) -> None:
    with pytest.raises(InputError, match=word):
        read_forest(content)


def test_padding_and_what_was_added() -> None:
    earlier = read_forest(model_values((2, 1)))
    later = read_forest(model_values((2, 1, 3)))
    added = later.after(earlier, where="a test")
    assert len(added.trees) == 1
    assert added.padded(2, 20, where="a test").shape == (2, 20, 8)
    with pytest.raises(InputError, match="at most 0 trees"):
        added.padded(0, 20, where="a test")
    with pytest.raises(InputError, match="begins"):
        read_forest(model_values((2, 2), seed=1)).after(earlier, where="a test")


def test_many_small_trees_beside_a_large_one_are_refused_before_they_are_padded() -> None:
    values = model_values((14, *[0] * 300))
    with pytest.raises(InputError, match="padded"):
        read_forest(values)
