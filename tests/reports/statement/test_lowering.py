import functools
import json
from pathlib import Path
from typing import Any

import pytest

from fedleak.core.metric_table import metric
from fedleak.core.taxonomy import NONE_FITS
from fedleak.reports.statement.lowering import lowering
from fedleak.reports.statement.lowering_content import Lowering
from fedleak.reports.statement.measured_content import Measured
from fedleak.reports.statement.numbers import Interval, of_taxonomy
from tests.places import ROOT

RESULTS = ROOT / "docs" / "results"


@functools.cache
def published(family: str) -> Lowering:
    """What the project's own results say of a question."""
    return lowering([question(family, "auc", {"recommendation": "InteractionEstimate"}.get(family))])


def question(family: str, name: str, estimate: str | None = None) -> Measured:
    half = Interval(value=0.5, low=0.5, high=0.5)
    texts: dict[str, Any] = dict.fromkeys(("infers", "attack", "sees", "knows", "meaning", "everyday", "sentence"), "x")
    nothing: dict[str, Any] = dict.fromkeys(("sensitivity", "guessing", "baseline", "worst_tenth", "rates"))
    return Measured(
        **texts,
        **nothing,
        question=family,
        estimate=estimate or "RecordMembershipEstimate",
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
        answer="yes",
        not_run=[],
        others=[],
        worst_clients=0,
        adds="",
    )


@pytest.mark.integration
def test_published_effects_are_read_not_typed() -> None:
    found = published("recommendation")
    (effect,) = [one for one in found.effects if one.data == "ml-100k"]
    assert effect.defence == "epsilon of local privacy, per message"
    assert [cell.value for cell in effect.cells][:2] == ["inf", 500]
    assert effect.cells[-1].value == 1
    assert effect.cells[-1].result.value == pytest.approx(0.859, abs=0.001)
    assert "other data" in found.sentence


def test_nothing_published_is_said(tmp_path: Path) -> None:
    found = lowering([question("recommendation", "auc")], tmp_path)
    assert found.effects == []
    assert "No effect on these questions was measured on other data either" in found.sentence


@pytest.mark.integration
def test_largest_leak_over_all_other_settings_stands_at_each_value() -> None:
    """Most tables and settings leak less at epsilon 100 than one search of one table, which a reader must see."""
    (effect,) = [one for one in published("recommendation").effects if one.data == "ml-100k"]
    at = {cell.value: cell for cell in effect.cells}[100]
    assert (at.table, at.attack, at.baseline) == ("raifle_algorithm2", "raifle", "popularity")
    assert at.result.value == pytest.approx(0.916, abs=0.001)
    assert at.baseline_result is not None
    assert at.baseline_result.value == pytest.approx(0.864, abs=0.001)
    assert at.gain == pytest.approx((0.916 - 0.864) / (1 - 0.864), abs=0.01)
    assert "item_embedding.weight only" in effect.note


def test_largest_leak_is_the_one_furthest_beyond_its_baseline(tmp_path: Path) -> None:
    """An L1 of 0.3 is none where guessing gives 0.3; an L1 of 0.5 is one where guessing gives 0.9."""

    def row(attack: str, value: float, clients: str, role: str) -> dict[str, Any]:
        setting = {"data": "d", "clients": clients, "epsilon": 1}
        return {"attack": attack, "mean": value, "setting": setting, "baseline": role == "baseline", "role": role}

    rows = [
        *(row("a", value, clients, "ours") for value, clients in ((0.3, "alike"), (0.5, "different"))),
        *(row("guess", value, clients, "baseline") for value, clients in ((0.3, "alike"), (0.9, "different"))),
    ]
    rows += [{**one, "setting": {**one["setting"], "epsilon": 9}} for one in rows]
    common = {"metric": "l1", "n": 5, "seeds": 1, "std": 0.1, "seconds_per_victim": 0.0, "paper": None}
    common |= {"family": "composition", "question": "CompositionEstimate"}
    common |= {"threat_model": {"sees": "", "knows": "", "active": False}}
    template = json.loads((RESULTS / "labels_ilrg.json").read_text(encoding="utf-8"))
    template["results"] = [{**common, **one, "ci95": [one["mean"]] * 2} for one in rows]
    (tmp_path / "made.json").write_text(json.dumps(template))
    (effect,) = lowering([question("composition", "l1", "CompositionEstimate")], tmp_path).effects
    assert [cell.result.value for cell in effect.cells] == [0.5, 0.5]
    assert [cell.gain for cell in effect.cells] == pytest.approx([4 / 9, 4 / 9])


@pytest.mark.integration
def test_noise_on_everything_is_said() -> None:
    found = published("record-membership").effects
    assert "everything that is sent" in {one.note for one in found}.pop()
