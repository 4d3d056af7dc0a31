"""Run of the cells of a table, by an engine."""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fedleak.core.errors import require
from fedleak.core.progress import say_what_starts
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.engines import Engine
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.part import place_of
from fedleak.evaluation.steps import RecordingStep
from fedleak.tables.after import AfterStep, after_steps
from fedleak.tables.after.step import add_steps
from fedleak.tables.cell import Cell, Stamp
from fedleak.tables.cell_cache import CellRun, Finished, StaleError, read_cell, trained, write_cell
from fedleak.tables.quiet import quieten
from fedleak_recorder.files import make_folder
from fedleak_recorder.format import only_writer


def joined_fingerprints(cells: Sequence[Cell]) -> dict[str, str]:
    """Distinct names and hashes of the cells' data."""
    fingerprints = {cell.data: cell.fingerprint() for cell in cells}.values()
    return {
        "name": " ".join(fingerprint["name"] for fingerprint in fingerprints),
        "sha256": " ".join(fingerprint["sha256"] for fingerprint in fingerprints),
    }


def part_of(cells: Sequence[Any], part: str | None) -> list[Any]:
    """Every N-th cell from the I-th on, by a part ``I/N`` with I from 0 to N - 1; all cells for None.

    Raises:
        InputError: the part has another form, or is empty.
    """
    first, count = place_of(part)
    chosen = list(cells)[first::count]
    require(chosen, f"a part of {len(cells)} trainings", f"the empty part {part}", "Use fewer parts.")
    return chosen


def run_table(
    cells: Sequence[Cell], *, engine: Engine, name: str, part: str | None = None
) -> list[tuple[Cell, Finished]]:
    """Runs the cells with a progress bar; finished cells are read back before the engine starts anything.

    Args:
        cells: cells to run; those that share a training are one part of the engine's work.
        engine: where they run.
        name: label of the progress bar.
        part: part of the trainings as ``I/N``; None for all.
    """
    # 1. Cells of one training stand together, so that only one process trains it.
    cells_by_training: dict[Path, list[Cell]] = {}
    for cell in cells:
        cells_by_training.setdefault(cell.folder, []).append(cell)
    trainings = part_of(list(cells_by_training.values()), part)
    _quieten()
    # 2. Finished cells are read back; what is left is the work.
    finished_cells: dict[str, Finished] = {}
    work: list[list[tuple[Cell, Stamp]]] = []
    for training in trainings:
        left = []
        for cell in training:
            stamp = cell.stamp(cell.fingerprint())
            earlier = _earlier(cell, stamp)
            if earlier is None:
                left.append((cell, stamp))
            else:
                finished_cells[cell.key] = earlier
        if left:
            work.append(left)
    for key in finished_cells:
        print(f"{key}: read back", file=sys.stderr)
    # 3. The others run; another process may finish one of them first.
    if work and not engine.in_this_process:
        say_what_starts(f"starting {engine.in_words}; each loads torch and the attacks")
    total = sum(map(len, trainings))
    # The time left is that of other cells, so the bar does not start at 0.
    with tqdm(total=total, initial=len(finished_cells), desc=name, unit="cell") as bar:
        for key, finished in _finished(work, engine):
            outcome = "read back"
            if not finished.read_back:
                seconds = finished.seconds
                outcome = f"trained in {seconds['train']:.1f} s, attacked in {seconds['attack']:.1f} s"
            bar.write(f"{key}: {outcome}", file=sys.stderr)
            bar.update()
            finished_cells[key] = finished
    return [(cell, finished_cells[cell.key]) for cell in cells if cell.key in finished_cells]


def _finished(work: Sequence[Sequence[tuple[Cell, Stamp]]], engine: Engine) -> Iterator[tuple[str, Finished]]:
    """Runs the cells of each training; each with its key, as soon as it or its training is finished."""
    if engine.in_this_process:
        for training in work:
            for cell, stamp in training:
                yield cell.key, run_cell(cell, stamp)
        return
    for finished_training in engine.run(_finished_group, work):
        yield from finished_training


def _finished_group(group: Sequence[tuple[Cell, Stamp]]) -> list[tuple[str, Finished]]:
    _quieten()
    return [(cell.key, run_cell(cell, stamp, wait=True)) for cell, stamp in group]


def _quieten() -> None:
    """Hides what a table, which has a progress bar of its own, does not need of other packages."""
    quieten()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def run_cell(cell: Cell, stamp: Stamp, *, wait: bool = False) -> Finished:
    """Trains, records and attacks, unless another process finishes the cell first, which is then read back.

    `wait` says whether to wait for another process that writes to the training's folder, e.g. for another cell.
    """
    path = _file(cell)
    with contextlib.suppress(StaleError):
        earlier = read_cell(path, stamp)
        if earlier is not None:
            return earlier
    make_folder(path.parent)
    with only_writer(cell.folder, wait=wait):
        seconds = trained(cell, stamp)
        start = time.perf_counter()
        evaluation = _evaluate(CellRun.of(cell, stamp, seconds))
        finished = Finished(evaluation, {"train": seconds, "attack": time.perf_counter() - start})
        write_cell(path, stamp, finished)
    return finished


def _earlier(cell: Cell, stamp: Stamp) -> Finished | None:
    """The cell as it was finished before, if nothing has changed; None if it has to be run."""
    try:
        return read_cell(_file(cell), stamp)
    except StaleError as stale:
        print(f"{cell.key}: run again, because {stale}", file=sys.stderr)
        return None


def _file(cell: Cell) -> Path:
    return cell.out / "cells" / f"{cell.key}.json"


def _evaluate(run: CellRun) -> Evaluation:
    """Scores of the attacks on a trained cell, with the rows of its steps."""
    cell = run.cell
    steps = after_steps(cell.after)
    # Steps that need the recording alone run with the attacks, those that need the training after them.
    plan = cell.plan(run.recording, [step for step in steps if isinstance(step, RecordingStep)])
    evaluation = run_audit(plan, progress=cell.progress).evaluation
    add_steps([step for step in steps if isinstance(step, AfterStep)], run, evaluation)
    return evaluation
