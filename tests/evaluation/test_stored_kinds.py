"""A stored evaluation with a right checksum and other values than this program writes is one clear error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.core.estimates import ROC_GRID, Reconstruction
from fedleak.core.provenance import hashed
from fedleak.evaluation.labels import Label
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table, with_setting
from fedleak.evaluation.stored import EVALUATION
from fedleak.evaluation.stored_run import read_run, store_run
from tests.reports.toys import run

Change = Callable[[dict[str, Any]], object]
SVG = "PHN2Zy8+"  # <svg/>, of no namespace


@pytest.fixture
def body(tmp_path: Path) -> dict[str, Any]:
    scores = [score_table("a", {"auc": [0.8, 0.9]}, setting={"data": "d"}, seed=0, victims=[1, 2])]
    shares = {"attack": "a", "seed": 0, "round": 0, "victim": 1, "class": [0, 1], "true": 0.5, "inferred": 0.5}
    images = torch.zeros(2, 1, 4, 4)
    evaluation = Evaluation(
        scores=concat(scores),
        lines={"a": AttackInfo(role="ours")},
        roc={"a": (ROC_GRID.double().numpy(), 1)},
        missing={"b": Reason("lacking", ("labels",), "add them")},
        unrelated={"c": Reason("inapplicable", says="there are no items")},
        not_under_defences={"a": Reason("under-defences", way_out="give --slow", says="it takes 29 s")},
        pictures={"a": Reconstruction(images, images)},
        profiles=with_setting(pd.DataFrame({**shares, "low": 0.4, "high": 0.6}), data="d"),
        details={"a": pd.DataFrame({"n": [1], "text": ["x"]})},
        labels={"a (d)": Label("a", "d")},
    )
    store_run(tmp_path, run(), evaluation, {"name": "d", "sha256": "0"})
    content: dict[str, Any] = json.loads((tmp_path / EVALUATION).read_text())
    assert content.pop("format") == 3
    content.pop("sha256")
    return content


def write(folder: Path, content: object) -> None:
    text = {"format": 3, "sha256": hashed(content), **content} if isinstance(content, dict) else content
    (folder / EVALUATION).write_text(json.dumps(text))


def test_what_this_program_writes_is_read(tmp_path: Path, body: dict[str, Any]) -> None:
    write(tmp_path, body)
    assert read_run(tmp_path).data == {"name": "d", "sha256": "0"}
    write(tmp_path, {**body, "profiles": {}})
    assert read_run(tmp_path).evaluation.profiles.empty


def test_reasons_are_read_with_their_fields(tmp_path: Path, body: dict[str, Any]) -> None:
    write(tmp_path, body)
    evaluation = read_run(tmp_path).evaluation
    assert evaluation.missing == {"b": Reason("lacking", ("labels",), "add them")}
    assert evaluation.unrelated == {"c": Reason("inapplicable", says="there are no items")}
    assert evaluation.not_run["a under defences"].kind == "under-defences"


CHANGES: dict[str, Change] = {
    "no person": lambda b: b["scores"].pop("person"),
    "a person that is a text": lambda b: b["scores"].update(person=["object", ["1", "2"]]),
    "a person that is null": lambda b: b["scores"].update(person=["float64", [None, 1.0]]),
    "a person that is too large": lambda b: b["scores"].update(person=["int64", [2**70, 1]]),
    "an attack that is a number": lambda b: b["scores"].update(attack=["object", [1, 2]]),
    "a list in a cell": lambda b: b["scores"].update({"setting.x": ["object", [[1], {"a": 1}]]}),
    "a column that is shorter": lambda b: b["scores"].update(seed=["int64", [0]]),
    "a column of another kind": lambda b: b["scores"].update(seed=["datetime64[ns]", ["2020", "2021"]]),
    "a column that is a text": lambda b: b["scores"].update(seed=["int64", "00"]),
    "a column without values": lambda b: b["scores"].update(seed=["int64"]),
    "shares without a class": lambda b: b["profiles"].pop("class"),
    "shares that are texts": lambda b: b["profiles"].update(true=["object", ["a", "b"]]),
    "a line with a number": lambda b: b["lines"]["a"].update(family=1),
    "a line with a number among its reasons": lambda b: b["lines"]["a"].update(unbounded=[1]),
    "a line with another field": lambda b: b["lines"]["a"].update(more=1),
    "a curve of two points": lambda b: b["roc"].update(a=[[0.0, 1.0], 1]),
    "a curve of a text": lambda b: b["roc"].update(a=["x", 1]),
    "a curve of half a client": lambda b: b["roc"]["a"].__setitem__(1, 0.5),
    "a reason that is a number": lambda b: b["missing"].update(b=1),
    "a reason of another kind": lambda b: b["missing"]["b"].update(kind="x"),
    "a reason with a number": lambda b: b["unrelated"]["c"].update(says=1),
    "a reason that lacks a text": lambda b: b["missing"]["b"].update(lacks="labels"),
    "a reason with another field": lambda b: b["missing"]["b"].update(more=""),
    "pictures of another size": lambda b: b["pictures"]["a"][0].update(shape=[2, 1, 4, 5]),
    "pictures of a negative size": lambda b: b["pictures"]["a"][0].update(shape=[-2, -1, 4, 4]),
    "pictures of a text": lambda b: b["pictures"]["a"][0].update(shape="2144"),
    "pictures without an end": lambda b: b["pictures"]["a"][0].update(shape=[2**40, 2**40, 1, 1]),
    "a label with a number": lambda b: b["labels"]["a (d)"].update(setting=1),
    "a label with another field": lambda b: b["labels"]["a (d)"].update(more=""),
    "a table of an attack with lists": lambda b: b["details"].update(a={"n": ["object", [[1]]]}),
    "a figure that is no drawing": lambda b: b.update(figures=[{"caption": "", "name": "", "files": {"svg": SVG}}]),
    "a figure without a name": lambda b: b.update(figures=[{"caption": 1, "name": 2, "files": {"svg": SVG}}]),
    "no results": lambda b: b.pop("run"),
    "results without a mean": lambda b: b["run"]["results"][0].pop("mean"),
    "a verdict that is a number": lambda b: b["run"]["gate"][0].update(verdict=1),
    "a part that nobody knows": lambda b: b.update(more={}),
    "data that are a number": lambda b: b.update(data={"name": 1}),
    "data that are a list": lambda b: b.update(data=[1]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_values_are_one_clear_error(tmp_path: Path, body: dict[str, Any], change: Change) -> None:
    change(body)
    write(tmp_path, body)
    with pytest.raises(InputError, match="damaged, or another version's"):
        read_run(tmp_path)


@pytest.mark.parametrize("content", [None, [], 1, "x", {}, [[[]]]])
def test_another_file_is_one_clear_error(tmp_path: Path, content: object) -> None:
    write(tmp_path, content)
    with pytest.raises(InputError, match="damaged"):
        read_run(tmp_path)
