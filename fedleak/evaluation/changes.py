"""What changed between two runs: what attacks infer in one minus what they infer in the other."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from fedleak.core.errors import require
from fedleak.core.metric_table import metric
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.paired_means import crossed, mean_over_clients, paired
from fedleak.evaluation.persons import without_persons
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import SETTING, AttackInfo, describe, from_records, setting_columns
from fedleak.evaluation.stored_run import StoredRun
from fedleak_recorder.pseudonyms import KEY_VARIABLE, secret_key

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

_DATA = SETTING + "data"
Key = tuple[str, ...]
"""Metric and settings, as texts: what two rows must have in common to be compared."""
Direction = Literal["more", "less", "equal", "undecided"]
COLUMNS: tuple[str, ...] = (
    *("question", "family", "best", "attack", "reference_attack", "metric", "reference", "value"),
    *("change", "low", "high", "n", "seeds", "paired", "verdict"),
)
"""Columns of a table of changes, in addition to its settings."""
_MOST_NAMES = 8
"""Names of attacks that an error lists at most."""
_NUMBERS = ("reference", "value", "change", "low", "high")
"""Columns that the text of a table shows between the attacks and the verdict."""


@dataclass(frozen=True)
class Change:
    """Difference between two runs: the mean of an attack in one minus that in the reference.

    Attributes:
        question: what the server infers, in words.
        family: family of the attack.
        best: whether the attacks are the best of a question in either run; otherwise they have the same label.
        attack: label of the attack.
        reference_attack: label of the attack in the reference.
        metric: metric.
        setting: columns of the setting that both have.
        reference: mean in the reference.
        value: mean in the run.
        change: difference; of the clients that both runs have if it is paired.
        n: number of clients, the smaller one of both runs if it is not paired.
        seeds: number of seeds that both have.
        same: whether every client has the same value in both for each seed, or in neither.
        parts: means of which the interval of the difference is made: its own, or those of the reference and of the run.
        gaps: ``(P,)`` differences of clients; None if they are not paired.
    """

    question: str
    family: str
    best: bool
    attack: str
    reference_attack: str
    metric: str
    setting: Mapping[str, Any]
    reference: float
    value: float
    change: float
    n: int
    seeds: int
    same: bool
    parts: tuple[MeanOverClients, ...]
    gaps: "pd.Series[float] | None" = field(repr=False)

    @property
    def sign(self) -> int:
        """1 if more of the metric is more leakage, -1 if less is."""
        return metric(self.metric).sign

    def ends(self, low_tests: int = 1, high_tests: int = 1) -> tuple[float, float]:
        """Ends of the 95% interval of the difference, each for a number of tests.

        References:
            G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
            Statistics in Medicine, 2008: the interval of a difference of independent means from theirs.
        """
        if self.gaps is not None:
            return self.parts[0].ends(low_tests, high_tests)
        before, after = self.parts
        # The lower end needs the lower end of the run and the upper one of the reference, and the reverse.
        run_low, run_high = after.ends(low_tests, high_tests)
        reference_low, reference_high = before.ends(high_tests, low_tests)
        low = self.change - math.hypot(after.mean - run_low, reference_high - before.mean)
        high = self.change + math.hypot(run_high - after.mean, before.mean - reference_low)
        least, most = metric(self.metric).span or (-math.inf, math.inf)
        return max(low, least - most), min(high, most - least)

    @property
    def verdict(self) -> Direction:
        """Whether more or less is inferred than in the reference, by the whole interval; equal for every client."""
        if self.same:
            return "equal"
        low, high = sorted(self.sign * end for end in self.ends())
        # A difference of infinite means is no number.
        if self.n < FEWEST or not (low > 0 or high < 0):
            return "undecided"
        return "more" if low > 0 else "less"

    def row(self) -> dict[str, Any]:
        """Row of a table, with columns `COLUMNS` and the settings."""
        row = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name in COLUMNS}
        row["low"], row["high"] = self.ends()
        row["paired"] = self.gaps is not None
        row["verdict"] = self.verdict
        return {**row, **self.setting}


@dataclass(frozen=True, repr=False)
class Changes:
    """What changed from a reference to a run.

    Attributes:
        reference: name of the reference.
        run: name of the run.
        rows: differences: for each question the best attack in either run, then every attack that both have.
        how: sentences on how clients were matched, and on what verdicts mean.
        not_compared: sentences on the attacks that only one of both has.
    """

    reference: str
    run: str
    rows: Sequence[Change]
    how: Sequence[str]
    not_compared: Sequence[str]

    @property
    def notes(self) -> list[str]:
        """All sentences."""
        return [*self.how, *self.not_compared]

    @property
    def same(self) -> bool:
        """Whether every client has the same score by every attack in both runs, as two audits of one recording give."""
        return all(row.same for row in self.rows)

    @property
    def table(self) -> pd.DataFrame:
        """A row per question, metric and setting, then one per attack; columns `COLUMNS` and the settings."""
        settings = dict.fromkeys(name for row in self.rows for name in row.setting)
        return from_records([row.row() for row in self.rows], [*COLUMNS, *settings])

    def __repr__(self) -> str:
        """The sentences, and the table as text."""
        shown = self.table[["attack", "reference_attack", "metric", *_NUMBERS, "n", "verdict"]]
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
    names = reference.name, run.name
    if reference.name == run.name:
        names = "the reference", "the run"
    (earlier, later), why_not = _numbered_alike(reference, run, key)
    before, after = _Side(earlier, names[0]), _Side(later, names[1])
    # Rows are compared that have the same values of the settings that vary within a run.
    columns = dict.fromkeys([*before.columns, *after.columns])
    varied = [name for name in columns if name == _DATA or _varies(name, before, after)]
    old_cells, new_cells = before.cells(varied), after.cells(varied)
    common = [cell for cell in new_cells if cell in old_cells]
    alike = why_not is None
    rows = []
    ranks = _ranks(reference, varied), _ranks(run, varied)
    for old, new in _best_pairs(after, new_cells, common, ranks):
        rows.append(change(old_cells[old], new_cells[new], after.info(new_cells[new]), alike=alike, best=True))
    for cell in common:
        rows.append(change(old_cells[cell], new_cells[cell], after.info(new_cells[cell]), alike=alike))
    listed = [name for name in varied if name != _DATA]
    how = [*_matching(before, after, rows, why_not), *_reading(rows)]
    not_compared = [
        *_only(before, old_cells, new_cells, listed, ranks[0]),
        *_only(after, new_cells, old_cells, listed, ranks[1]),
    ]
    return Changes(before.name, after.name, rows, how, not_compared)


def check_comparable(reference: StoredRun, data: str, attacks: Sequence["Attack"]) -> None:
    """Checks, before the attacks of a run, that something of it can be compared with a reference.

    Args:
        reference: earlier run.
        data: name of the data set that the attacks will run on.
        attacks: attacks that will run.

    Raises:
        InputError: all results of the reference are on other data sets, or of other attacks.
    """
    scores = reference.evaluation.scores
    data_sets = [str(name) for name in scores[_DATA].dropna().unique()] if _DATA in scores else []
    require(
        not data_sets or data in data_sets,
        f"--reference: a run of the data set {data}",
        f"{reference.name}, a run of {', '.join(data_sets)}",
        "Give a run of the same data set, as no other can be compared; or omit --reference.",
    )
    earlier = {str(label) for label in _Side(reference.evaluation, reference.name).scores["attack"]}
    names = {name for attack in attacks if not attack.baseline for name in attack.names()}
    require(
        not earlier or earlier & names,
        f"--reference: a run of one of the attacks {_some(names)}",
        f"{reference.name}, a run of {_some(earlier)}",
        "Give a run with one of these attacks, name one of the reference with --only or --also, or omit --reference.",
    )


def _some(names: Collection[str]) -> str:
    """The first of some names, in alphabetical order."""
    first = ", ".join(sorted(names)[:_MOST_NAMES])
    return f"{first}, ..." if len(names) > _MOST_NAMES else first


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
        cells = {}
        for (label, *key), rows in texts.groupby(["attack", "metric", *settings], sort=False, dropna=False):
            if rows["value"].notna().any():
                cells[str(label), tuple(map(str, key))] = self.scores.loc[rows.index]
        return cells

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


_Rank = tuple[bool, float, float]
"""What puts one attack before another, see `fedleak.evaluation.comparisons.Cells.rank`."""


def _ranks(run: StoredRun, settings: Sequence[str]) -> dict[tuple[str, Key], _Rank]:
    """Rank of every attack of a run by attack and `Key`."""
    table = run.table
    if table is None:
        from fedleak.evaluation.summary import summarise  # it imports torch, which stored runs do without

        table = summarise(run.evaluation)
    results = as_recorded(table)
    cells = Cells(results)
    # An attack of which no result is reported comes last.
    ranks: dict[tuple[str, Key], _Rank] = defaultdict(lambda: (False, -math.inf, -math.inf))
    for row in cells.rows:
        key = str(row["metric"]), *(repr(row.get(name)) for name in settings)
        ranks[str(row["attack"]), key] = cells.rank(row)
    return ranks


def _best_pairs(
    after: _Side,
    new: _Cells,
    common: Sequence[tuple[str, Key]],
    ranks: tuple[Mapping[tuple[str, Key], _Rank], Mapping[tuple[str, Key], _Rank]],
) -> Iterator[tuple[tuple[str, Key], tuple[str, Key]]]:
    """Best attack in the reference and in the run for each question and `Key`, among those that both have."""
    before_ranks, after_ranks = ranks
    asked: dict[tuple[Any, Key], list[tuple[str, Key]]] = {}
    for cell in common:
        _, key = cell
        asked.setdefault((after.info(new[cell]).question, key), []).append(cell)
    for cells in asked.values():
        yield max(cells, key=lambda cell: before_ranks[cell]), max(cells, key=lambda cell: after_ranks[cell])


def _only(
    side: _Side,
    cells: _Cells,
    of_other: _Cells,
    settings: Sequence[str],
    ranks: Mapping[tuple[str, Key], _Rank],
) -> list[str]:
    """Sentence on the attacks that only one run has, and on those of them that are better than all that both have."""
    labels, better = [], []
    for (attack, key), rows in cells.items():
        if (attack, key) in of_other:
            continue
        label, question = side.label(rows, settings), side.info(rows).question
        labels.append(label)
        compared = [
            ranks[other_attack, other_key]
            for (other_attack, other_key), compared_rows in cells.items()
            if (other_attack, other_key) in of_other
            and other_key == key
            and side.info(compared_rows).question == question
        ]
        if compared and ranks[attack, key] > max(compared):
            name = str(rows["metric"].iloc[0])
            better.append(f"{label} ({name} {float(np.nanmean(crossed(rows).to_numpy())):.3f})")
    if not labels:
        return []
    sentence = f"Only in {side.name}, and not compared: {', '.join(dict.fromkeys(labels))}."
    if better:
        sentence += f" Of these, {', '.join(dict.fromkeys(better))} infers more than every attack that was compared."
    return [sentence]


def _matching(before: _Side, after: _Side, rows: Sequence[Change], why_not: str | None) -> list[str]:
    """Sentence on how clients were matched."""
    if not rows:
        return [
            "Nothing can be compared: no attack has a value of the same metric on the same data set in both"
            f" {before.name} and {after.name}."
        ]
    minus = f"Differences are {after.name} minus {before.name}"
    if why_not is not None:
        sentences = [
            f"{minus}. They are not paired, because {why_not}: the intervals are those of independent clients."
        ]
        if before.people and after.people and not before.people & after.people:
            way_out = f"Clients have the same numbers in audits with one {KEY_VARIABLE}, or with --persons"
            sentences.append(f"{way_out}; those of other systems, if they were recorded with that key too.")
        return sentences
    shared, loose = len(before.people & after.people), sum(row.gaps is None for row in rows)
    counts = f"{len(before.people)} in {before.name}, {len(after.people)} in {after.name}"
    sentences = [f"{minus}, paired on the clients that have the same number in both: {shared} ({counts})."]
    if loose:
        text = f"Of {len(rows)} rows, {loose} are not paired, because fewer than {FEWEST} of their clients are in both"
        sentences.append(f"{text} runs; their intervals are those of independent clients.")
    for side, other in ((after, before), (before, after)):
        left = len(side.people - other.people)
        if 0 < left < FEWEST:
            verb = "is" if left == 1 else "are"
            sentences.append(
                f"{left} of {side.name} {verb} in no pair: the means over pairs and those over all clients give their"
                " mean, so pass both on only to those who may know them."
            )
    return sentences


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


def change(old: pd.DataFrame, new: pd.DataFrame, info: AttackInfo, *, alike: bool, best: bool = False) -> Change:
    """Difference between the scores of one attack, metric and setting in a run and in the reference.

    Args:
        old: scores in the reference, see `fedleak.evaluation.scores.SCHEMA`.
        new: scores in the run.
        info: description of the attack in the run.
        alike: whether a client has the same number in both.
        best: see `Change`.
    """
    if alike and not {*old["seed"]} & {*new["seed"]}:
        if min(old["seed"].nunique(), new["seed"].nunique()) > 1:
            # Several other trainings: the spread over those of each side counts.
            alike = False
        else:
            # One training a side: its values by client.
            old, new = old.assign(seed=0), new.assign(seed=0)
    difference = _paired(old, new) if alike else None
    if difference is None:
        difference = _independent(old, new)
    settings = {name: new[name].iloc[0] for name in setting_columns(new)}
    return Change(
        question=info.tells or str(info.question),
        family=str(info.family),
        best=best,
        attack=str(new["attack"].iloc[0]),
        reference_attack=str(old["attack"].iloc[0]),
        metric=str(new["metric"].iloc[0]),
        setting={name: value for name, value in settings.items() if value is not None},
        reference=difference.reference,
        value=difference.value,
        change=difference.change,
        n=difference.n,
        seeds=difference.seeds,
        same=difference.same,
        parts=difference.parts,
        gaps=difference.gaps,
    )


@dataclass(frozen=True)
class _Difference:
    """The numbers of a `Change`."""

    reference: float
    value: float
    change: float
    n: int
    seeds: int
    same: bool
    parts: tuple[MeanOverClients, ...]
    gaps: "pd.Series[float] | None"


def _independent(old: pd.DataFrame, new: pd.DataFrame) -> _Difference:
    """The difference of two means of which the clients cannot be paired."""
    before, after = mean_over_clients(old), mean_over_clients(new)
    tables = [crossed(scores).notna() for scores in (old, new)]
    return _Difference(
        reference=before.mean,
        value=after.mean,
        change=after.mean - before.mean,
        n=min(int(known.any(axis=1).sum()) for known in tables),
        seeds=min(int(known.any(axis=0).sum()) for known in tables),
        same=False,
        parts=(before, after),
        gaps=None,
    )


def _paired(old: pd.DataFrame, new: pd.DataFrame) -> _Difference | None:
    """The mean difference over the clients that both have; None if these are too few."""
    known = [{*rows["person"][rows["value"].notna()]} for rows in (old, new)]
    if len(known[0] & known[1]) < min(FEWEST, *map(len, known)):
        return None
    difference, gaps, _ = paired(new, old)
    if gaps.empty:
        return None
    # Both means are over the values that are in a pair.
    values = [crossed(scores).sort_index().sort_index(axis=1) for scores in (old, new)]
    common = [table.reindex(index=gaps.index, columns=gaps.columns).where(gaps.notna()) for table in values]
    clients, trainings = gaps.shape
    return _Difference(
        reference=float(np.nanmean(common[0].to_numpy())),
        value=float(np.nanmean(common[1].to_numpy())),
        change=difference.mean,
        n=clients,
        seeds=trainings,
        same=values[0].equals(values[1]),
        parts=(difference,),
        gaps=gaps.mean(axis=1),
    )
