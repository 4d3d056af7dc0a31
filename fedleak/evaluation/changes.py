"""What changed between two runs: what attacks infer in one minus what they infer in the other."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedleak.core.errors import require
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.persons import without_persons
from fedleak.evaluation.scores import SETTING, from_records
from fedleak.evaluation.stored_run import StoredRun
from fedleak_recorder.pseudonyms import secret_key

if TYPE_CHECKING:
    from fedleak.core.attack import Attack
from fedleak.evaluation.change import COLUMNS, Change, change
from fedleak.evaluation.changes_in_words import matching_sentences, not_compared_sentences, reading_sentences
from fedleak.evaluation.compared_side import CellScores, ComparedSide, Key, Rank, attack_ranks

_DATA = SETTING + "data"
_MOST_NAMES = 8
"""Names of attacks that an error lists at most."""
_NUMBERS = ("reference", "value", "change", "low", "high")
"""Columns that the text of a table shows between the attacks and the verdict."""


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
        settings: dict[str, None] = {}
        for row in self.rows:
            settings.update(dict.fromkeys(row.setting))
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
    if reference.name == run.name:
        reference_name, run_name = "the reference", "the run"
    else:
        reference_name, run_name = reference.name, run.name
    (earlier, later), why_not = _numbered_alike(reference, run, key)
    before = ComparedSide(earlier, reference_name)
    after = ComparedSide(later, run_name)
    # Rows are compared that have the same values of the settings that vary within a run.
    columns = dict.fromkeys([*before.columns, *after.columns])
    varied = [name for name in columns if name == _DATA or _varies(name, before, after)]
    old_cells = before.cells(varied)
    new_cells = after.cells(varied)
    common = [cell for cell in new_cells if cell in old_cells]
    alike = why_not is None
    # First the best attack at each question in either run, then every attack that both have.
    old_ranks = attack_ranks(reference, varied)
    new_ranks = attack_ranks(run, varied)
    rows = []
    for old, new in _best_pairs(after, new_cells, common, old_ranks, new_ranks):
        rows.append(change(old_cells[old], new_cells[new], after.info(new_cells[new]), alike=alike, best=True))
    for cell in common:
        rows.append(change(old_cells[cell], new_cells[cell], after.info(new_cells[cell]), alike=alike))
    named_settings = [name for name in varied if name != _DATA]
    how = [*matching_sentences(before, after, rows, why_not), *reading_sentences(rows)]
    not_compared = [
        *not_compared_sentences(before, old_cells, new_cells, named_settings, old_ranks),
        *not_compared_sentences(after, new_cells, old_cells, named_settings, new_ranks),
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
    data_sets = []
    if _DATA in scores:
        data_sets = [str(name) for name in scores[_DATA].dropna().unique()]
    require(
        not data_sets or data in data_sets,
        f"--reference: a run of the data set {data}",
        f"{reference.name}, a run of {', '.join(data_sets)}",
        "Give a run of the same data set, as no other can be compared; or omit --reference.",
    )
    compared_scores = ComparedSide(reference.evaluation, reference.name).scores
    earlier = {str(label) for label in compared_scores["attack"]}
    names: set[str] = set()
    for attack in attacks:
        if not attack.baseline:
            names.update(attack.names())
    require(
        not earlier or earlier & names,
        f"--reference: a run of one of the attacks {_some(names)}",
        f"{reference.name}, a run of {_some(earlier)}",
        "Give a run with one of these attacks, name one of the reference with --only or --also, or omit --reference.",
    )


def _some(names: Collection[str]) -> str:
    """The first of some names, in alphabetical order."""
    first = ", ".join(sorted(names)[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        return f"{first}, ..."
    return first


def _varies(column: str, before: ComparedSide, after: ComparedSide) -> bool:
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
    # One run may have the persons of a recording where the other has their numbers under the secret key.
    for first, second in (
        (before, after),
        (before, without_persons(after, key)),
        (without_persons(before, key), after),
    ):
        if {*first.scores["person"]} & {*second.scores["person"]}:
            return (first, second), None
    return (before, after), "no client has the same number in both"


def _best_pairs(
    after: ComparedSide,
    new: CellScores,
    common: Sequence[tuple[str, Key]],
    before_ranks: Mapping[tuple[str, Key], Rank],
    after_ranks: Mapping[tuple[str, Key], Rank],
) -> Iterator[tuple[tuple[str, Key], tuple[str, Key]]]:
    """Best attack in the reference and in the run for each question and `Key`, among those that both have."""
    by_question: dict[tuple[Any, Key], list[tuple[str, Key]]] = {}
    for cell in common:
        _, key = cell
        question = after.info(new[cell]).question
        by_question.setdefault((question, key), []).append(cell)
    for cells in by_question.values():
        best_before = max(cells, key=lambda cell: before_ranks[cell])
        best_after = max(cells, key=lambda cell: after_ranks[cell])
        yield best_before, best_after
