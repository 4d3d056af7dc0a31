"""What would lower a leak, as far as that was measured anywhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from evaluation.scores import SETTING, records, setting_columns, setting_of
from protocol.metrics import metric
from reports.provenance import CHECKOUT
from reports.run import ATTACKS, Run
from reports.statement.measured import Measured
from reports.statement.numbers import Cell, Interval, Strict, of_row

_DEFENCES = ("epsilon", "amount", "participants")
"""Settings of the published results that a client or operator can change to leak less."""
_RESULTS = CHECKOUT / "docs" / "results"


class At(Strict):
    """Best attack at one value of a defence."""

    value: Cell
    """value of the defence's setting"""
    attack: str
    """best attack there"""
    result: Interval
    """its mean"""
    n: int
    """number of clients"""


class Effect(Strict):
    """Measured effect of a defence on other data, from the published results of this project."""

    question: str
    """family of attacks"""
    table: str
    """table in docs/results"""
    setting: dict[str, Cell]
    """setting that the cells share"""
    defence: str
    """setting that varies, e.g. epsilon"""
    metric: str
    """metric"""
    cells: list[At]
    """best attack by value"""


class Lowering(Strict):
    """What would lower the leak."""

    sentence: str
    """whether an effect was measured, and where"""
    effects: list[Effect]
    """effects on other data"""


def lowering(measured: Sequence[Measured], folder: Path = _RESULTS) -> Lowering:
    """Measured effects of defences on the same questions and metrics, from published results.

    An audit is of one recording, so it measures no effect itself. Of each table and data the cells are those that vary
    most in one defence and share all other settings.
    """
    effects = [
        effect
        for path in sorted(folder.glob("*.json"))
        for results in [Run.read(path).results]
        for one in measured
        for effect in _effects(results, one, path.stem)
    ]
    elsewhere = (
        "The effects below were measured on other data; the model's utility, which falls too, is not compared."
        if effects
        else "None was measured for these questions on other data either."
    )
    sentence = (
        "This audit is of one recording, so it measured no effect of a defence on this system; train and record with a"
        f" defence and audit again. {elsewhere}"
    )
    return Lowering(sentence=sentence, effects=effects)


def _effects(results: pd.DataFrame, one: Measured, table: str) -> list[Effect]:
    same = results[(results["family"] == one.question) & (results["metric"] == one.metric)]
    same = same[same["role"].isin(ATTACKS) & same["mean"].notna()]
    best: dict[str, Effect] = {}
    for key in _DEFENCES:
        if SETTING + key not in same:
            continue
        others = [name for name in setting_columns(same) if name != SETTING + key]
        for _, group in same.groupby([same[name].map(repr) for name in others] or "metric", sort=False):
            effect = _effect(group, one, table, key)
            data = str(effect.setting.get("data"))
            if len(effect.cells) > max(1, len(best[data].cells) if data in best else 0):
                best[data] = effect
    return list(best.values())


def _effect(group: pd.DataFrame, one: Measured, table: str, key: str) -> Effect:
    """The best attack at every value of one setting, the largest leak first."""
    sign = -1 if metric(one.metric).lower_is_better else 1
    by_value: dict[Any, dict[str, Any]] = {}
    for row in records(group):
        value = row[SETTING + key]
        if value is not None and (value not in by_value or sign * row["mean"] > sign * by_value[value]["mean"]):
            by_value[value] = row
    rows = sorted(by_value.items(), key=lambda item: -sign * item[1]["mean"])
    cells = [At(value=value, attack=row["attack"], result=of_row(row), n=row["n"]) for value, row in rows]
    shared = {name: value for name, value in setting_of(records(group)[0]).items() if name != key}
    return Effect(question=one.question, table=table, setting=shared, defence=key, metric=one.metric, cells=cells)
