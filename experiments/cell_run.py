"""Run of a cell: training, recording, attacks, and the steps after them."""

import sys
import time

from tqdm import tqdm

from evaluation.auditing import audit
from evaluation.runner import Evaluation
from evaluation.steps import RecordingStep
from experiments.after import AfterStep, after_steps
from experiments.after.step import add_steps
from experiments.cell import Cell
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, write_cell
from experiments.cell_training import CellRun, trained
from fedleak_recorder.format import only_writer


def run_cell(cell: Cell, stamp: Stamp, *, wait: bool = False) -> Finished:
    """Trains, records and attacks; a cell that was finished before is read back if nothing has changed.

    Args:
        cell: cell to run.
        stamp: what the cell's numbers depend on.
        wait: whether to wait for another process that writes to the training's folder, e.g. for another cell.
    """
    path = cell.out / "cells" / f"{cell.key}.json"
    try:
        earlier = read_cell(path, stamp)
    except StaleError as stale:
        tqdm.write(f"{cell.key}: run again, because {stale}", file=sys.stderr)
        earlier = None
    if earlier is not None:
        return earlier
    path.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(cell.folder, wait=wait):
        seconds = trained(cell, stamp)
        start = time.perf_counter()
        evaluation = _evaluate(CellRun.of(cell, stamp, seconds))
        finished = Finished(evaluation, {"train": seconds, "attack": time.perf_counter() - start})
        write_cell(path, stamp, finished)
    return finished


def _evaluate(run: CellRun) -> Evaluation:
    cell, steps = run.cell, after_steps(run.cell.after)
    evaluation = audit(
        run.recording,
        list(cell.make_attacks().values()),
        seed=cell.seed,
        setting=cell.setting,
        victims=cell.victims,
        limits=cell.limits(),
        rounds=cell.rounds.which,
        by_round=cell.rounds.separate,
        history=cell.rounds.history,
        messages=cell.selection(),
        slow="all",
        steps=[step for step in steps if isinstance(step, RecordingStep)],
        describe=False,
        check_learner=False,
        separate=False,
        progress=cell.progress,
    ).evaluation
    add_steps([step for step in steps if isinstance(step, AfterStep)], run, evaluation)
    return evaluation
