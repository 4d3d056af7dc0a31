"""Run of a cell: training, recording, attacks, and the steps after them."""

import sys
import time

from tqdm import tqdm

from evaluation.evaluate import evaluate_recording
from evaluation.runner import Evaluation
from evaluation.scores import with_setting
from experiments.after import after_steps
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
        evaluation = _evaluate(CellRun(cell, stamp, seconds))
        finished = Finished(evaluation, {"train": seconds, "attack": time.perf_counter() - start})
        write_cell(path, stamp, finished)
    return finished


def _evaluate(run: CellRun) -> Evaluation:
    cell, evaluation = run.cell, Evaluation()
    if cell.attacks:
        evaluation = evaluate_recording(
            run.recording,
            list(cell.make_attacks().values()),
            seed=cell.seed,
            setting=cell.setting,
            victims=cell.victims,
            limits=cell.limits(),
            rounds=cell.rounds.which,
            history=cell.rounds.history,
            messages=cell.selection(),
            progress=cell.progress,
        )
    if cell.rounds.separate:
        tables = evaluation.scores, evaluation.profiles
        evaluation.scores, evaluation.profiles = (
            with_setting(table, round=table["round"] + 1) if len(table) else table for table in tables
        )
    for step in after_steps(cell.after):
        step(run, evaluation)
    return evaluation
