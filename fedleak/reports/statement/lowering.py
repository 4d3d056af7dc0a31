"""What would lower a leak, as far as that was measured anywhere."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedleak.core.places import PACKAGE, table_files
from fedleak.evaluation.advice import NOT_SEEN
from fedleak.evaluation.as_recorded import COSINE, DEFENCE
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.run import Run, read_published
from fedleak.evaluation.scores import SETTING, records, setting_columns
from fedleak.reports.statement.content import At, Effect, Lowering, Measured
from fedleak.reports.statement.numbers import of_row

_DEFENCES = ("epsilon", "amount", "participants")
"""Settings of the published results that a client or operator can change to leak less."""
_RESULTS = PACKAGE / "reports" / "published_results"
_NAMES = {
    "epsilon": "epsilon of local privacy, per message",
    "amount": "variance of the noise on each number",
    "participants": "participants of a sum",
}
_HERE = "this recording"


def lowering(
    measured: Sequence[Measured],
    folder: Path = _RESULTS,
    audited: Run | None = None,
) -> Lowering:
    """Measured effects of defences on the same questions and metrics: tried on the recording, and published ones.

    An audit of a recording as it is measures no effect itself. At each value of a defence stands the largest leak
    over all tables and other settings on the same data, of those settings in which the defence varies: the one that
    goes furthest from its baseline, or guessing, to certainty, because settings differ in what can be guessed.

    Args:
        measured: results of the audit.
        folder: published results.
        audited: the audit, None for none.
    """
    tables = [(path.stem, read_published(path)) for path in sorted(folder.glob("*.json"))]
    effects = [effect for one in measured for effect in _published(tables, one)]
    elsewhere = (
        "Effects on other data are those of the published results of this project. Each row has the largest leak at"
        " that value of the defence, over all other settings that were measured: the one furthest beyond its baseline."
        " The model's utility, which falls too, is not compared."
        if effects
        else "No effect on these questions was measured on other data either."
    )
    advice = "" if audited is None else audited.advice
    here = f"{advice} {NOT_SEEN}"
    if not advice:
        here = (
            "This audit is of one recording, so it measured no effect of a defence on this system. To measure one,"
            " audit with --what-if, or train and record with the defence and audit again."
        )
    own = [effect for one in measured for effect in _tried(audited.results, one)] if audited and advice else []
    return Lowering(sentence=f"{here} {elsewhere}", effects=[*own, *effects])


def _tried(results: pd.DataFrame, one: Measured) -> Iterator[Effect]:
    """The effect of defences tried on the recording."""
    column = SETTING + DEFENCE
    same = _of_attacks(results, one)
    kept = results[results["metric"] == COSINE].groupby(column)["mean"].mean()
    found = _largest(same, results, column, _HERE).values()
    cells = [at.model_copy(update={"signal": kept.get(str(at.value))}) for at in found]
    for data in same[SETTING + "data"].unique()[:1]:
        yield _effect(one, str(data), "defence", "", cells, here=True)


def _published(tables: Sequence[tuple[str, Run]], one: Measured) -> Iterator[Effect]:
    """An effect for each defence, what it covers, and data of all tables."""
    found: dict[tuple[str, str, str], dict[Any, At]] = defaultdict(dict)
    for name, run in tables:
        same = _of_attacks(run.results, one)
        for key in _DEFENCES:
            column = SETTING + key
            if column not in same or same.empty:
                continue
            given = same[same[column].notna()]
            if key == "amount":  # of other mitigations, the amount is no variance
                given = given[given[SETTING + "mitigation"].isin(("none", "noise"))]
            others = [setting for setting in setting_columns(same) if setting not in (column, SETTING + "mitigation")]
            varied = given.groupby([given[other].map(repr) for other in others] or "metric", sort=False)[column]
            given = given[varied.transform(lambda values: values.map(repr).nunique()) > 1]
            note = _covered(run.experiment) if key == "epsilon" else ""
            for data, rows in given.groupby(SETTING + "data", sort=False):
                cells = found[str(data), key, note]
                for value, at in _largest(rows, run.results, column, name).items():
                    if value not in cells or at.gain > cells[value].gain:
                        cells[value] = at
    for (data, key, note), by_value in found.items():
        yield _effect(one, data, _NAMES[key], note, list(by_value.values()), here=False)


def _of_attacks(results: pd.DataFrame, one: Measured) -> pd.DataFrame:
    """Results of attacks on a question, by its metric."""
    same = (results["family"] == one.question) & (results["question"] == one.estimate)
    same &= (results["metric"] == one.metric) & results["role"].isin(ATTACKS) & results["mean"].notna()
    return results[same]


def _effect(one: Measured, data: str, defence: str, note: str, cells: Sequence[At], *, here: bool) -> Effect:
    ordered = sorted(cells, key=lambda at: (-_value(at), -at.gain))
    return Effect(
        question=one.question,
        infers=one.infers,
        metric=one.metric,
        data=data,
        here=here,
        defence=defence,
        note=note,
        cells=ordered,
    )


def _value(at: At) -> float:
    """Value of a defence's setting, 0 if it is no number."""
    try:
        return float(at.value or 0)
    except ValueError:
        return 0.0


def _largest(rows: pd.DataFrame, results: pd.DataFrame, column: str, table: str) -> dict[Any, At]:
    """The largest leak at every value of one setting, with the best baseline of the same setting."""
    cells = Cells(results)
    largest: dict[Any, At] = {}
    for key, of_value in rows.groupby(column):
        value: Any = key
        row = max(records(of_value), key=cells.rank)
        baseline = cells.baseline(row)
        largest[value] = At(
            value=value,
            table=table,
            attack=row["attack"],
            n=row["n"],
            baseline=None if baseline is None else baseline.name,
            baseline_result=None if baseline is None or baseline.row is None else of_row(baseline.row),
            baseline_reads=baseline is not None and baseline.kind == "control",
            gain=cells.gain(row) or 0.0,
            result=of_row(row),
        )
    return largest


def _covered(table: str) -> str:
    """What the noise of a table's defences covers, from the table's file and those that it extends."""
    path, names = table_files().get(table), set[str]()
    while path is not None and path.exists():
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
