"""What would lower a leak, as far as that was measured anywhere."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from evaluation.scores import SETTING, records, setting_columns
from evaluation.what_if import COSINE, DEFENCE
from protocol.metric_table import metric
from protocol.provenance import CHECKOUT
from reports.headline import best_baseline
from reports.run import ATTACKS, Run
from reports.statement.measured import Measured
from reports.statement.numbers import Cell, Interval, Strict, of_row

_DEFENCES = ("epsilon", "amount", "participants")
"""Settings of the published results that a client or operator can change to leak less."""
_RESULTS = CHECKOUT / "docs" / "results"
_TABLES = CHECKOUT / "configs" / "paper"
_NAMES = {"epsilon": "epsilon of local privacy", "amount": "amount of noise", "participants": "participants of a sum"}


class At(Strict):
    """Largest leak at one value of a defence, over all other settings of the table."""

    value: Cell
    """value of the defence's setting"""
    attack: str
    """best attack there"""
    result: Interval
    """its mean"""
    n: int
    """number of clients"""
    baseline: str | None
    """best baseline in the same setting, null if there is none"""
    baseline_result: Interval | None
    """its mean"""
    signal: float | None = None
    """cosine of the round's mean update with and without the defence, null for a trained one"""


class Effect(Strict):
    """Measured effect of a defence, on this recording, or on other data from the published results of this project."""

    question: str
    """family of attacks"""
    table: str
    """table in docs/results; `this recording` for a defence tried on it"""
    setting: dict[str, Cell]
    """setting that the cells share: the data"""
    defence: str
    """what varies, e.g. epsilon of local privacy"""
    note: str
    """what the defence covers, empty where the table does not say it"""
    metric: str
    """metric"""
    cells: list[At]
    """largest leak by value"""


class Lowering(Strict):
    """What would lower the leak."""

    sentence: str
    """whether an effect was measured, and where"""
    effects: list[Effect]
    """effects, those on this recording first"""


def lowering(measured: Sequence[Measured], folder: Path = _RESULTS, audited: Run | None = None) -> Lowering:
    """Measured effects of defences on the same questions and metrics: tried on the recording, and published ones.

    An audit of a recording as it is measures no effect itself. At each value of a defence stands the largest leak
    over all other settings of the table on the same data, of those settings in which the defence varies.
    """
    effects = [
        effect
        for path in sorted(folder.glob("*.json"))
        for run in [Run.read(path)]
        for one in measured
        for effect in _effects(run, one, path.stem)
    ]
    elsewhere = (
        "The effects in other tables below were measured on other data; the model's utility, which falls too, is not"
        " compared. Where tables give several values at one setting of a defence, the largest counts: the others tried"
        " other attacks."
        if effects
        else "None was measured for these questions on other data either."
    )
    advice = "" if audited is None else audited.advice
    here = advice or (
        "This audit is of one recording, so it measured no effect of a defence on this system; audit with --what-if, or"
        " train and record with a defence and audit again."
    )
    own = [effect for one in measured for effect in _tried(audited.results, one)] if audited and advice else []
    return Lowering(sentence=f"{here} {elsewhere}", effects=[*own, *effects])


def _tried(results: pd.DataFrame, one: Measured) -> Iterator[Effect]:
    """The effect of defences tried on the recording."""
    column = SETTING + DEFENCE
    same = results[(results["family"] == one.question) & (results["metric"] == one.metric)]
    same = same[same["role"].isin(ATTACKS) & same["mean"].notna()]
    kept = results[results["metric"] == COSINE].groupby(column)["mean"].mean()
    cells = [at.model_copy(update={"signal": kept.get(str(at.value))}) for at in _cells(same, one, results, column)]
    for data in same[SETTING + "data"].unique()[:1]:
        common: dict[str, Any] = {"question": one.question, "table": "this recording", "metric": one.metric}
        yield Effect(**common, setting={"data": str(data)}, defence="defence", note="", cells=cells)


def _effects(run: Run, one: Measured, table: str) -> Iterator[Effect]:
    """An effect for each defence and data of a table."""
    results = run.results
    same = results[(results["family"] == one.question) & (results["metric"] == one.metric)]
    same = same[same["role"].isin(ATTACKS) & same["mean"].notna()]
    for key in _DEFENCES:
        column = SETTING + key
        if column not in same or same.empty:
            continue
        others = [name for name in setting_columns(same) if name != column]
        given = same[same[column].notna()]
        varied = given.groupby([given[name].map(repr) for name in others] or "metric", sort=False)[column]
        given = given[varied.transform(lambda values: values.map(repr).nunique()) > 1]
        for data, rows in given.groupby(SETTING + "data", sort=False):
            cells = _cells(rows, one, results, column)
            common: dict[str, Any] = {"question": one.question, "table": table, "metric": one.metric}
            note = _covered(run.experiment) if key == "epsilon" else ""
            yield Effect(**common, setting={"data": str(data)}, defence=_NAMES[key], note=note, cells=cells)


def _cells(rows: pd.DataFrame, one: Measured, results: pd.DataFrame, column: str) -> list[At]:
    """The largest leak at every value of one setting with its baseline, the largest of all first."""
    sign = -1 if metric(one.metric).lower_is_better else 1
    by_value: dict[Any, dict[str, Any]] = {}
    for row in records(rows):
        value = row[column]
        if value not in by_value or sign * row["mean"] > sign * by_value[value]["mean"]:
            by_value[value] = row
    cells = []
    for value, row in sorted(by_value.items(), key=lambda item: -sign * item[1]["mean"]):
        found = best_baseline(row, results)
        baseline = (None, None) if found is None else (found["attack"], of_row(found))
        common: dict[str, Any] = {"value": value, "attack": row["attack"], "result": of_row(row), "n": row["n"]}
        cells.append(At(**common, baseline=baseline[0], baseline_result=baseline[1]))
    return cells


def _covered(table: str) -> str:
    """What the noise of a table's defences covers, from the table's file and those that it extends."""
    path, names = _TABLES / f"{table}.yaml", set[str]()
    while path.exists():
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for arguments in _noised(content):
            names |= set(arguments.get("parameters") or ["everything that is sent"])
        if names or "over" not in content:
            break
        path = path.parent / content["over"]
    only = "" if "everything that is sent" in names else " only; everything else is sent as it is"
    return f"the noise covers {', '.join(sorted(names))}{only}" if names else ""


def _noised(content: Any) -> Iterator[dict[str, Any]]:
    """Arguments of all defences with an epsilon."""
    if isinstance(content, dict) and "epsilon" in (content.get("init_args") or {}):
        yield content["init_args"]
    for part in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _noised(part)
