"""Trees with small leaves do not leave, whatever their Hessians say; those with large ones do."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak_guard import Guard, Message, RefusedError
from fedleak_recorder.arrays import Array
from tests.tree_toys import SITE_LABELS, SITE_ROWS, as_ubj, site_model

SECTION = "trees: {smallest_leaf: 20, smallest_class: 5, deepest: 2, most_trees: 2, threshold_digits: 2}\n"


def site(folder: Path, section: str = SECTION) -> Guard:
    """The guard of a site whose policy has a section about trees."""
    tensors = "tensors: [{name: model, dtype: uint8}]\n"
    (folder / "policy.yaml").write_text(f"format: 1\nevidence: {folder}/evidence\n{tensors}{section}")
    return Guard(folder / "policy.yaml")


def message(content: Any, number: int = 0, **changes: Any) -> Message:
    """A message of a model as one row of bytes, as Flower's clients send it."""
    if isinstance(content, dict):
        content = np.frombuffer(json.dumps(content).encode(), np.uint8)
    given: dict[str, Any] = {
        "job": "job",
        "round": number,
        "sent": {"model": content},
        "holds": "models",
        "records": SITE_ROWS,
        "labels": SITE_LABELS,
        "examples": 200,
    }
    return Message(**{**given, **changes})


def test_trees_with_large_leaves_leave_as_they_are(tmp_path: Path) -> None:
    guard = site(tmp_path)
    contents = [json.dumps(site_model(0.5)).encode(), as_ubj(site_model(0.3, 0.6, splits=2))]
    for number, content in enumerate(contents):
        tensors = guard.release(message(content, number)).tensors
        assert tensors is not None
        assert tensors["model"].tobytes() == content


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("content", "labels", "reason"),
    [
        # 19 of 200 rows are below 0.095: at 0.1 there are 20.
        ({"thresholds": (0.5, 0.095)}, SITE_LABELS, "1 trees with a leaf of 19 rows, where the policy asks for 20"),
        ({"thresholds": (0.5,)}, SITE_LABELS * (np.arange(200) >= 100), "1 trees with a leaf of 0 rows of one class"),
        ({"thresholds": (0.3,), "splits": 3}, SITE_LABELS, "a leaf 3 splits below the root, where the policy allows 2"),
        ({"thresholds": (0.3, 0.4, 0.5)}, SITE_LABELS, "3 new trees, where the policy allows 2"),
        ({"thresholds": (0.5, 0.3333)}, SITE_LABELS, "1 thresholds with more than 2 decimal places"),
    ],
)
def test_what_breaks_a_limit_stays(
    tmp_path: Path, content: dict[str, Any], labels: Array, reason: str, masked: bool
) -> None:
    options = {name: value for name, value in content.items() if name != "thresholds"}
    sent = site_model(*content["thresholds"], masked=masked, **options)
    with pytest.raises(RefusedError, match=reason):
        site(tmp_path).release(message(sent, labels=labels))


def test_enough_rows_of_each_class_in_each_leaf_leave(tmp_path: Path) -> None:
    # 5 of the 100 rows on the left are positive, and one fewer is too few.
    for first, leaves in ((90, True), (92, False)):
        labels = SITE_LABELS * (np.arange(200) >= first)
        guard = site(tmp_path)
        if leaves:
            assert guard.release(message(site_model(0.5), labels=labels)).tensors is not None
        else:
            with pytest.raises(RefusedError, match="a leaf of 4 rows of one class"):
                guard.release(message(site_model(0.5), 1, labels=labels))


def test_a_leaf_that_no_row_reaches_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="a leaf of 0 rows"):
        site(tmp_path, "trees: {smallest_leaf: 1}\n").release(message(site_model(2.0)))


def test_a_missing_value_goes_where_the_tree_sends_it(tmp_path: Path) -> None:
    rows = SITE_ROWS.copy()
    rows[:190, 0] = np.nan
    sent = site_model(0.96)
    guard = site(tmp_path, "trees: {smallest_leaf: 3}\n")
    with pytest.raises(RefusedError, match="a leaf of 2 rows"):
        guard.release(message(sent, records=rows))
    sent["learner"]["gradient_booster"]["model"]["trees"][0]["default_left"][0] = 1
    assert guard.release(message(sent, 1, records=rows)).tensors is not None


def test_trees_that_the_site_received_are_not_its_own(tmp_path: Path) -> None:
    received = site_model(0.002, 0.004, 0.006)
    for content in (site_model(0.002, 0.004, 0.006, 0.5), site_model(0.5)):
        released = site(tmp_path).release(
            message(content, received={"model": np.frombuffer(json.dumps(received).encode(), np.uint8)})
        )
        assert released.tensors is not None
    # An own small leaf behind them, and one tree of them changed.
    for content in (site_model(0.002, 0.004, 0.006, 0.01), site_model(0.002, 0.004, 0.007, 0.5)):
        with pytest.raises(RefusedError, match="tree-limits"):
            site(tmp_path).release(message(content, received={"model": json.dumps(received).encode()}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"records": None}, "rows and labels are unknown"),
        ({"labels": None}, "rows and labels are unknown"),
        ({"records": SITE_ROWS[:, :2]}, "expected rows of the 3 columns"),
        ({"records": SITE_ROWS[:150], "labels": SITE_LABELS[:150]}, "expected the 200 rows"),
        ({"labels": np.linspace(0, 3, 200)}, "labels of 0 and 1"),
        ({"sent": {"model": b""}}, "tree-limits failed"),
        ({"sent": {"model": b"\x80\x04."}}, "a pickle, which is never opened"),
        ({"sent": {"model": json.dumps(site_model(0.5)).encode()[:-9]}}, "tree-limits failed"),
        ({"sent": {"model": np.zeros(9, "f")}}, "expected trees as 'model'"),
        ({"sent": {"model": np.zeros((3, 3), np.uint8)}}, "expected trees as 'model'"),
    ],
)
def test_what_cannot_be_judged_stays(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        site(tmp_path).release(message(site_model(0.5), **changes))


def test_limits_on_trees_alone_need_no_rows(tmp_path: Path) -> None:
    guard = site(tmp_path, "trees: {deepest: 2}\n")
    assert guard.release(message(site_model(0.002), records=None, labels=None)).tensors is not None


def test_what_a_model_holds_besides_trees_is_linted(tmp_path: Path) -> None:
    texts = {"note": "Patient Miller, born on 3 May 1961, came back on Monday with chest pain and a fever of 39."}
    for number, sent in enumerate((site_model(0.5, attributes=texts), _with_list_in_tree())):
        for content in (json.dumps(sent).encode(), as_ubj(copy.deepcopy(sent))):
            with pytest.raises(RefusedError, match="message-lint"):
                site(tmp_path).release(message(content, number))


def _with_list_in_tree() -> dict[str, Any]:
    """A tree with a list that XGBoost does not write: a value for each of 200 rows."""
    sent = site_model(0.5)
    sent["learner"]["gradient_booster"]["model"]["trees"][0]["losses"] = np.random.default_rng(0).random(200).tolist()
    return sent


def test_without_the_section_no_trees_leave(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"message-lint: .*trees"):
        site(tmp_path, "").release(message(site_model(0.5)))


@pytest.mark.parametrize(
    ("section", "way_out"),
    [
        ("trees: {}\n", "Add smallest_leaf"),
        ("trees: {smallest_leaf: 0}\n", "smallest_leaf"),
        ("trees: {smallest_leafs: 5}\n", "Did you mean smallest_leaf"),
        ("findings: {tree-limits: log}\n", "Add trees"),
        ("findings: {tree-limits: noise}\ntrees: {deepest: 3}\n", "refuse, log"),
    ],
)
def test_a_policy_that_says_nothing_of_trees_is_refused(tmp_path: Path, section: str, way_out: str) -> None:
    with pytest.raises(RefusedError, match=way_out):
        site(tmp_path, section).release(message(site_model(0.5)))


def test_trees_of_xgboost_and_their_masked_twins(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(400, 3)).round(1)
    labels = (rows[:, 0] + draws.normal(size=400) > 0).astype(int)
    table = xgboost.DMatrix(rows, labels)
    guard = site(tmp_path, "trees: {smallest_leaf: 20, smallest_class: 5}\n")
    # With a Hessian of 1/4 for each row, a child's sum of 5 is 20 rows.
    numbers = iter(range(9))
    for weight, leaves in ((5.0, True), (0.1, False)):
        parameters = {
            "objective": "binary:logistic",
            "max_depth": 4 if not leaves else 1,
            "min_child_weight": weight,
            "base_score": 0.5,
        }
        booster = xgboost.train(parameters, table, 1)
        for content in (bytes(booster.save_raw("json")), bytes(booster.save_raw("ubj"))):
            sent = message(content, next(numbers), records=rows, labels=labels, examples=400)
            if leaves:
                assert guard.release(sent).tensors is not None
            else:
                with pytest.raises(RefusedError, match=r"tree-limits: .* trees with a leaf of"):
                    guard.release(sent)
