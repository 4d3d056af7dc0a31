"""What would lower a leak, as far as that was measured anywhere."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
from fedleak.reports.statement.lowering_content import At, Effect, Lowering
from fedleak.reports.statement.measured_content import Measured
from fedleak.reports.statement.numbers import of_row

_DEFENCES = ("epsilon", "amount", "participants")
"""Settings of the published results that a client or operator can change to leak less."""
_RESULTS = PACKAGE / "reports" / "published_results"
_NAMES = {
    "epsilon": "epsilon of local privacy, per message",
    "amount": "variance of the noise on each number",
    "participants": "participants of a sum",
}
"""Names of these settings in a statement."""
_HERE = "this recording"
"""Name of the table of a defence that was tried on the audited recording."""
_EVERYTHING = "everything that is sent"
"""What the noise of a defence covers that names no parameters."""


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
    published: list[Effect] = []
    for question in measured:
        published += _published(tables, question)
    elsewhere = "No effect on these questions was measured on other data either."
    if published:
        elsewhere = (
            "Effects on other data are those of the published results of this project. Each row has the largest leak"
            " at that value of the defence, over all other settings that were measured: the one furthest beyond its"
            " baseline. The model's utility, which falls too, is not compared."
        )
    tried: list[Effect] = []
    if audited is not None and audited.advice:
        on_recording = f"{audited.advice} {NOT_SEEN}"
        for question in measured:
            tried += _tried(audited.results, question)
    else:
        on_recording = (
            "This audit is of one recording, so it measured no effect of a defence on this system. To measure one,"
            " audit with --what-if, or train and record with the defence and audit again."
        )
    return Lowering(sentence=f"{on_recording} {elsewhere}", effects=[*tried, *published])


def _tried(results: pd.DataFrame, question: Measured) -> list[Effect]:
    """The effect of defences tried on the recording; none where no attack on the question ran."""
    column = SETTING + DEFENCE
    of_question = _of_attacks(results, question)
    if of_question.empty:
        return []
    cosines = results[results["metric"] == COSINE].groupby(column)["mean"].mean()
    cells = []
    for at in _largest(of_question, results, column, _HERE).values():
        cells.append(at.model_copy(update={"signal": cosines.get(str(at.value))}))
    effect = Effect(
        question=question.question,
        infers=question.infers,
        metric=question.metric,
        data=str(of_question[SETTING + "data"].iloc[0]),
        here=True,
        defence="defence",
        note="",
        cells=_in_order(cells),
    )
    return [effect]


def _published(tables: Sequence[tuple[str, Run]], question: Measured) -> list[Effect]:
    """An effect for each defence, what it covers, and data of all tables."""
    cells_by_effect: dict[tuple[str, str, str], dict[Any, At]] = defaultdict(dict)
    for name, run in tables:
        of_question = _of_attacks(run.results, question)
        for key in _DEFENCES:
            column = SETTING + key
            if column not in of_question or of_question.empty:
                continue
            note = _covered(run.experiment) if key == "epsilon" else ""
            for data, rows in _varied(of_question, key).groupby(SETTING + "data", sort=False):
                # Tables on the same data add up; at each value the largest leak of all stays.
                cells = cells_by_effect[str(data), key, note]
                for value, at in _largest(rows, run.results, column, name).items():
                    if value not in cells or at.gain > cells[value].gain:
                        cells[value] = at
    effects = []
    for (data_name, key, note), by_value in cells_by_effect.items():
        effect = Effect(
            question=question.question,
            infers=question.infers,
            metric=question.metric,
            data=data_name,
            here=False,
            defence=_NAMES[key],
            note=note,
            cells=_in_order(by_value.values()),
        )
        effects.append(effect)
    return effects


def _varied(results: pd.DataFrame, key: str) -> pd.DataFrame:
    """Results in settings that stand with two values of a defence or more, so that these compare."""
    column = SETTING + key
    with_defence = results[results[column].notna()]
    if key == "amount":  # of other mitigations, the amount is no variance
        with_defence = with_defence[with_defence[SETTING + "mitigation"].isin(("none", "noise"))]
    other_settings = [name for name in setting_columns(results) if name not in (column, SETTING + "mitigation")]
    # Values of a setting compare by their texts: one may be a list. All rows have one metric.
    groups = with_defence.groupby(
        [with_defence[name].map(repr) for name in other_settings] or "metric",
        sort=False,
    )
    counts = groups[column].transform(lambda values: values.map(repr).nunique())
    return with_defence[counts > 1]


def _of_attacks(results: pd.DataFrame, question: Measured) -> pd.DataFrame:
    """Results of attacks on a question, by its metric."""
    of_question = (results["family"] == question.question) & (results["question"] == question.estimate)
    by_metric = (results["metric"] == question.metric) & results["mean"].notna()
    return results[of_question & by_metric & results["role"].isin(ATTACKS)]


def _in_order(cells: Iterable[At]) -> list[At]:
    """Cells from the largest value of a defence's setting to the smallest, of equal values the largest leak first."""
    return sorted(cells, key=lambda at: (-_value(at), -at.gain))


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
        # A control reads the update too, so that a defence makes it worse with the attack.
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
    path = table_files().get(table)
    names: set[str] = set()
    # A file without a defence of its own has that of the file that it stands over.
    while path is not None and path.exists():
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for arguments in _noised(content):
            names |= set(arguments.get("parameters") or [_EVERYTHING])
        if names or "over" not in content:
            break
        path = path.parent / content["over"]
    if not names:
        return ""
    covered = f"the noise covers {', '.join(sorted(names))}"
    if _EVERYTHING in names:
        return covered
    return f"{covered} only; everything else is sent as it is"


def _noised(content: Any) -> Iterator[dict[str, Any]]:
    """Arguments of all defences with an epsilon."""
    if isinstance(content, dict):
        if "epsilon" in (content.get("init_args") or {}):
            yield content["init_args"]
        for field in content.values():
            yield from _noised(field)
    elif isinstance(content, list):
        for element in content:
            yield from _noised(element)
