import functools
from pathlib import Path
from typing import Any

import pytest

from protocol.metric_table import metric
from protocol.taxonomy import NONE_FITS
from reports.statement.lowering import Lowering, lowering
from reports.statement.measured import Measured
from reports.statement.numbers import Interval, of_taxonomy


@functools.cache
def published(family: str) -> Lowering:
    """What the project's own results say of a question."""
    return lowering([question(family, "auc")])


def question(family: str, name: str) -> Measured:
    half = Interval(value=0.5, low=0.5, high=0.5)
    texts: dict[str, Any] = dict.fromkeys(("infers", "attack", "sees", "knows", "meaning", "sentence"), "x")
    nothing: dict[str, Any] = dict.fromkeys(("sensitivity", "guessing", "baseline", "worst_tenth", "rates"))
    return Measured(
        **texts,
        **nothing,
        question=family,
        attacks=1,
        names=of_taxonomy(NONE_FITS),
        worst_people=[],
        most_exposed=[],
        setting={},
        metric=name,
        direction="lower means that more is inferred"
        if metric(name).lower_is_better
        else "higher means that more is inferred",
        result=half,
        n=1,
        seeds=1,
        certainty=metric(name).certainty,
        certain=0,
        beyond_baseline=True,
        worst_clients=0,
        adds="",
    )


def test_published_effects_are_read_not_typed() -> None:
    found = published("recommendation")
    tables = {one.table: one for one in found.effects if one.setting["data"] == "ml-100k"}
    effect = tables["raifle_table13"]
    assert effect.defence == "epsilon of local privacy"
    assert [cell.value for cell in effect.cells] == [500, 100, 20, 1]
    assert effect.cells[0].result.value == pytest.approx(0.829, abs=0.001)
    assert "measured on other data" in found.sentence


def test_nothing_published_is_said(tmp_path: Path) -> None:
    found = lowering([question("recommendation", "auc")], tmp_path)
    assert found.effects == []
    assert "None was measured for these questions on other data either" in found.sentence


def test_largest_leak_over_all_other_settings_stands_at_each_value() -> None:
    """A table whose first setting leaks less under noise than the others."""
    (effect,) = [one for one in published("recommendation").effects if one.table == "raifle_algorithm2"]
    assert effect.setting == {"data": "ml-100k"}
    assert [cell.value for cell in effect.cells] == ["inf", 500, 100]
    assert [cell.result.value for cell in effect.cells] == pytest.approx([1.0, 0.930, 0.916], abs=0.001)
    assert {cell.baseline for cell in effect.cells} == {"popularity"}
    assert effect.cells[2].baseline_result is not None
    assert effect.cells[2].baseline_result.value == pytest.approx(0.864, abs=0.001)
    assert "item_embedding.weight only" in effect.note


def test_noise_on_everything_is_said() -> None:
    found = published("record-membership").effects
    assert "everything that is sent" in next(one for one in found if one.table == "membership_noise").note
