"""What changed between two runs: what attacks infer in one minus what they infer in the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedleak.core.metric_table import metric
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.change import CHANGE, Change, change
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.paired_means import crossed
from fedleak.evaluation.persons import without_persons
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import SETTING, AttackInfo, describe, from_records, setting_columns
from fedleak.evaluation.stored_run import StoredRun
from fedleak_recorder.pseudonyms import KEY_VARIABLE, secret_key

_DATA = SETTING + "data"
Key = tuple[str, ...]
"""Metric and settings, as texts: what two rows must have in common to be compared."""


@dataclass(frozen=True, repr=False)
class Changes:
    """What changed from a reference to a run.

    Attributes:
        reference: name of the reference.
        run: name of the run.
        rows: differences: for each question the best attack in either run, then every attack that both have.
        notes: sentences on how clients were matched, and on what was not compared.
    """

    reference: str
    run: str
    rows: Sequence[Change]
    notes: Sequence[str]

    @property
    def same(self) -> bool:
        """Whether every client has the same score by every attack in both runs, as two audits of one recording give."""
        return all(row.same for row in self.rows)

    @property
    def table(self) -> pd.DataFrame:
        """A row per question, metric and setting, then one per attack; columns `CHANGE` and the settings."""
        rows = [one.row() for one in self.rows]
        settings = dict.fromkeys(name for one in self.rows for name in one.setting)
        return from_records(rows, [*CHANGE, *settings])

    def __repr__(self) -> str:
        """The sentences, and the table as text."""
        shown = self.table[["attack", "reference_attack", "metric", *CHANGE[6:11], "n", "verdict"]]
        return "\n".join([*self.notes, "", shown.to_string(index=False, float_format="{:.3f}".format)])


def changes(reference: StoredRun, run: StoredRun, *, key: bytes | None = None) -> Changes:
    """Differences between two runs for the metrics that judge attacks: the run minus the reference.

    Only equal attacks, metrics and settings are compared; a setting with one value in each run, except the data set,
    describes the run. Clients are paired by their numbers if at least 5 of them, or all of one run, are in both runs.
    Then the interval is that of the mean difference (`fedleak.evaluation.mean_interval.MeanOverClients`), over clients,
    and over trainings if both runs have several of the same seeds; otherwise it is made of those of the two means.

    Args:
        reference: earlier run, or run without a defence.
        run: run that is compared with it.
        key: secret key of the numbers of clients, see `fedleak.evaluation.persons`; None for that of `secret_key`.
    """
    names = [one.name for one in (reference, run)]
    names = names if names[0] != names[1] else ["the reference", "the run"]
    sides, why_not = _numbered_alike(reference, run, key)
    before, after = (_Side(side, names[place]) for place, side in enumerate(sides))
    columns = dict.fromkeys([*before.columns, *after.columns])
    varied = [name for name in columns if name == _DATA or _varies(name, before, after)]
    cells = before.cells(varied), after.cells(varied)
    common = [one for one in cells[1] if one in cells[0]]
    pairs = [(one, one, False) for one in common]
    pairs = [*((*pair, True) for pair in _best_pairs(after, *cells, common)), *pairs]
    rows = [
        change(cells[0][old], cells[1][new], after.info(cells[1][new]), alike=why_not is None, best=best)
        for old, new, best in pairs
    ]
    listed = [name for name in varied if name != _DATA]
    only = [*_only(before, cells[0], cells[1], listed), *_only(after, cells[1], cells[0], listed)]
    return Changes(before.name, after.name, rows, [*_matching(before, after, rows, why_not), *_reading(rows), *only])


class _Side:
    """Scores of a run that are compared: of attacks, by the metrics that judge them; and their means."""

    def __init__(self, evaluation: Evaluation, name: str) -> None:
        scores, lines = as_recorded(evaluation.scores), evaluation.lines
        roles = scores["attack"].map({label: line.role for label, line in lines.items()})
        judged = is_judged(scores, {label: line.question for label, line in lines.items()})
        self.name, self.lines = name, lines
        self.scores = scores[roles.isin(ATTACKS) & judged]
        self.columns = setting_columns(self.scores)
        self.distinct = {column: set(self.scores[column].map(repr)) for column in self.columns}
        self.people = set(self.scores["person"])

    def cells(self, settings: Sequence[str]) -> dict[tuple[str, Key], pd.DataFrame]:
        """Scores by attack and `Key`, without those that have no value."""
        absent = pd.Series([None] * len(self.scores), index=self.scores.index, dtype=object)
        texts = self.scores.assign(**{name: self.scores.get(name, absent).map(repr) for name in settings})
        found = {}
        for (label, *key), rows in texts.groupby(["attack", "metric", *settings], sort=False, dropna=False):
            if rows["value"].notna().any():
                found[str(label), tuple(map(str, key))] = self.scores.loc[rows.index]
        return found

    def info(self, rows: pd.DataFrame) -> AttackInfo:
        """Description of the attack of some scores."""
        return self.lines.get(str(rows["attack"].iloc[0]), AttackInfo())

    def label(self, rows: pd.DataFrame, settings: Sequence[str]) -> str:
        """Label of the attack of some scores, with its setting."""
        described = describe({name.removeprefix(SETTING): rows[name].iloc[0] for name in settings if name in rows})
        return f"{rows['attack'].iloc[0]} in {described}" if described else str(rows["attack"].iloc[0])


def _varies(column: str, before: _Side, after: _Side) -> bool:
    return any(len(side.distinct.get(column, ())) > 1 for side in (before, after))


def _numbered_alike(
    reference: StoredRun, run: StoredRun, key: bytes | None
) -> tuple[tuple[Evaluation, Evaluation], str | None]:
    """Both evaluations with numbers of clients that fit together, and why no client can be paired."""
    before, after = reference.evaluation, run.evaluation
    if not reference.data or not run.data:
        return (before, after), "it is not known of which data a run of an earlier version is"
    if dict(reference.data) != dict(run.data):
        return (before, after), "the two runs are of different data"
    key = key or secret_key()
    for sides in ((before, after), (before, without_persons(after, key)), (without_persons(before, key), after)):
        if {*sides[0].scores["person"]} & {*sides[1].scores["person"]}:
            return sides, None
    return (before, after), "no client has the same number in both"


_Cells = Mapping[tuple[str, Key], pd.DataFrame]


def _leak(rows: pd.DataFrame) -> float:
    """Mean of some scores, with the sign with which more is more leakage."""
    sign = -1 if metric(str(rows["metric"].iloc[0])).lower_is_better else 1
    return sign * float(np.nanmean(crossed(rows).to_numpy()))


def _best_pairs(
    after: _Side, old: _Cells, new: _Cells, common: Sequence[tuple[str, Key]]
) -> Iterator[tuple[tuple[str, Key], tuple[str, Key]]]:
    """Best attack in the reference and in the run for each question and `Key`, among those that both have."""
    asked: dict[tuple[Any, Key], list[tuple[str, Key]]] = {}
    for one in common:
        asked.setdefault((after.info(new[one]).question, one[1]), []).append(one)
    for cells in asked.values():
        yield max(cells, key=lambda one: _leak(old[one])), max(cells, key=lambda one: _leak(new[one]))


def _only(side: _Side, own: _Cells, other: _Cells, settings: Sequence[str]) -> list[str]:
    """Sentence on the attacks that only one run has, and on those of them that are better than all that both have."""
    labels, better = dict[str, None](), dict[str, None]()
    for one, rows in own.items():
        if one in other:
            continue
        label, question, name = side.label(rows, settings), side.info(rows).question, str(rows["metric"].iloc[0])
        labels[label] = None
        shared = [
            _leak(c) for k, c in own.items() if k in other and k[1] == one[1] and side.info(c).question == question
        ]
        if shared and _leak(rows) > max(shared):
            better[f"{label} ({name} {abs(_leak(rows)):.3f})"] = None
    if not labels:
        return []
    exceeding = f" Of these, {', '.join(better)} infers more than every attack that was compared." if better else ""
    return [f"Only in {side.name}, and not compared: {', '.join(labels)}.{exceeding}"]


def _matching(before: _Side, after: _Side, rows: Sequence[Change], why_not: str | None) -> list[str]:
    """Sentence on how clients were matched."""
    if not rows:
        return [
            "Nothing can be compared: no attack has a value of the same metric on the same data set in both"
            f" {before.name} and {after.name}."
        ]
    minus = f"Differences are {after.name} minus {before.name}"
    if why_not is not None:
        found = [f"{minus}. They are not paired, because {why_not}: the intervals are those of independent clients."]
        if before.people and after.people and not before.people & after.people:
            way_out = f"Clients have the same numbers in audits with one {KEY_VARIABLE}, or with --persons"
            found.append(f"{way_out}; those of other systems, if they were recorded with that key too.")
        return found
    shared, loose = len(before.people & after.people), sum(one.gaps is None for one in rows)
    counts = f"{len(before.people)} in {before.name}, {len(after.people)} in {after.name}"
    found = [f"{minus}, paired on the clients that have the same number in both: {shared} ({counts})."]
    if loose:
        text = f"Of {len(rows)} rows, {loose} are not paired, because fewer than {FEWEST} of their clients are in both"
        found.append(f"{text} runs; their intervals are those of independent clients.")
    for side, other in ((after, before), (before, after)):
        left = len(side.people - other.people)
        if 0 < left < FEWEST:
            verb = "is" if left == 1 else "are"
            found.append(
                f"{left} of {side.name} {verb} in no pair: the means over pairs and those over all clients give their"
                " mean, so pass both on only to those who may know them."
            )
    return found


def _reading(rows: Sequence[Change]) -> list[str]:
    """Sentences on what verdicts mean; none without a row."""
    if not rows:
        return []
    best = sum(row.best for row in rows)
    sentences = [
        f"More and less are about what is inferred: they need the whole 95% interval and {FEWEST} clients. Equal"
        f" means that no client's value differs. Each of the {len(rows)} intervals holds by itself."
    ]
    if any(row.seeds < 2 for row in rows):
        sentences.append(
            "Where each run has one training, the interval is over clients and about these two models. Two trainings of"
            " one system differ as well, so that a difference is a sign of a change of the system only where several"
            " trainings of each show it."
        )
    sentences.append(
        "A row of the best attack compares the attack that is best at the question in each run, as an attacker who"
        f" adapts would choose it, by the same data ({best} of the rows)."
    )
    return sentences
