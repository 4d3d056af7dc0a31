"""Stored run: evaluation.json, the one file of a run that is read again; results.json is written of it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedleak.core.errors import InputError, require
from fedleak.evaluation.attack_descriptions import know_metrics
from fedleak.evaluation.earlier_run import earlier_run
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.run import Run
from fedleak.evaluation.stored import (
    EVALUATION,
    DamagedError,
    OtherFormatError,
    evaluation_of,
    read_parts,
    write_evaluation,
)
from fedleak.evaluation.stored_kinds import EvaluationParts

_WAY_OUT = "Give a folder that fedleak audit, run or reproduce wrote, e.g. runs/NAME, or write it anew."


@dataclass(frozen=True)
class StoredRun:
    """Run as it is stored: its evaluation, which has scores of single clients, and its results, which have none.

    An audit that is compared before it is stored has no results yet.

    Attributes:
        name: name of the run.
        evaluation: its evaluation.
        data: name and hash of its data; empty if an earlier version of this project did not keep them.
        results: what results.json holds; None for an audit that is not stored.
        summary: its results, see `fedleak.evaluation.summary.summarise`, where it is not stored; None if unknown.
    """

    name: str
    evaluation: Evaluation
    data: Mapping[str, str]
    results: Run | None = None
    summary: pd.DataFrame | None = None

    @property
    def table(self) -> pd.DataFrame | None:
        """Its results, a row per attack, metric and setting; None if they are unknown."""
        if self.results is None:
            return self.summary
        return self.results.results


class _RunParts(EvaluationParts):
    """Entries of the file of a run."""

    data: dict[str, str]
    run: Run


def store_run(directory: Path, run: Run, evaluation: Evaluation, data: Mapping[str, str]) -> None:
    """Writes evaluation.json, and then results.json, for programs of others, into the folder of a run.

    Args:
        directory: the folder.
        run: results of the run.
        evaluation: its evaluation, in which clients have the names that they have in files.
        data: name and hash of its data, as they were recorded.
    """
    write_evaluation(directory / EVALUATION, evaluation, data=dict(data), run=run.plain())
    run.write(directory)


def read_run(directory: Path) -> StoredRun:
    """The run that ``fedleak`` wrote into a folder.

    Raises:
        InputError: there is none, or it is damaged.
    """
    know_metrics()  # those of its attacks, which pages explain
    try:
        parts = read_parts(directory / EVALUATION, _RunParts)
        evaluation = evaluation_of(parts)
        return StoredRun(directory.resolve().name, evaluation, parts.data, _with_fields(parts.run, evaluation))
    except (FileNotFoundError, OtherFormatError):
        return _earlier(directory)
    except DamagedError as error:
        raise _damaged(directory, error) from None


def _with_fields(run: Run, evaluation: Evaluation) -> Run:
    """A run with the reasons of its evaluation, which have fields, in the place of their sentences."""
    reasons = {**evaluation.not_run, **evaluation.unrelated}
    return dataclasses.replace(
        run,
        not_run={name: reasons.get(name, reason) for name, reason in run.not_run.items()},
        unrelated={name: reasons.get(name, reason) for name, reason in run.unrelated.items()},
    )


def read_results(directory: Path) -> Run:
    """The results of the run that ``fedleak`` wrote into a folder.

    Raises:
        InputError: there is none, or it is damaged.
    """
    results = read_run(directory).results
    assert results is not None  # whatever is read was stored
    return results


def read_reference(directory: Path) -> StoredRun:
    """The run in a folder, to be compared with another one.

    Raises:
        InputError: there is none with the scores of its clients, or it is damaged.
    """
    require((directory / EVALUATION).is_file(), f"a folder with {EVALUATION}", f"none in {directory}", _WAY_OUT)
    return read_run(directory)


def _earlier(directory: Path) -> StoredRun:
    """The run that an earlier version wrote into a folder."""
    try:
        run, evaluation, data = earlier_run(directory)
    except DamagedError as error:
        raise _damaged(directory, error) from None
    return StoredRun(directory.resolve().name, evaluation, data, run)


def _damaged(directory: Path, error: DamagedError) -> InputError:
    return InputError(
        expected=f"{EVALUATION} as fedleak writes it",
        found=f"one that is {error} in {directory}",
        way_out=_WAY_OUT,
    )
