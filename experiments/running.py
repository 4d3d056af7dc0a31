"""Runs the cells of a table, one after the other or several at once."""

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from errors import InputError
from experiments.base import PaperCell
from reports.evaluation import Evaluation

Finished = tuple[Evaluation, dict[str, float]]


def default_jobs(*, small_cells: bool) -> int:
    """How many cells to run at once: as many as there are cores where each keeps one core busy."""
    return len(os.sched_getaffinity(0)) if small_cells else 1


def part_of(cells: Sequence[PaperCell], part: str | None) -> list[PaperCell]:
    """Every N-th cell from the I-th on.

    Args:
        cells: all cells.
        part: ``I/N``, I from 0 to N - 1; None for all cells.

    Raises:
        InputError: it is no such part.
    """
    if part is None:
        return list(cells)
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if found is None or int(found[1]) >= int(found[2]):
        raise InputError(
            expected="--part I/N with I from 0 to N - 1", found=part, way_out="The parts of two are 0/2 and 1/2."
        )
    return list(cells)[int(found[1]) :: int(found[2])]


def run_cells(cells: Sequence[PaperCell], directory: Path, *, jobs: int, name: str) -> list[Evaluation]:
    """Runs every cell, those finished before excepted, with a bar and the time left.

    Args:
        cells: what to run.
        directory: where each cell keeps its recording and scores, in ``cells/KEY``.
        jobs: cells at once, each in a process of its own with one thread; 1 for this process with all threads.
        name: what the bar is called.
    """
    evaluations = []
    with tqdm(_results(cells, directory, jobs), total=len(cells), desc=name, unit="cell") as bar:
        for cell, (found, seconds) in zip(cells, bar, strict=True):
            spent = f"trained in {seconds['train']:.1f} s, attacked in {seconds['attack']:.1f} s"
            bar.write(f"{cell.key}: {spent}", file=sys.stderr)
            evaluations.append(found)
    return evaluations


def _results(cells: Sequence[PaperCell], directory: Path, jobs: int) -> Iterator[Finished]:
    folders = [directory / "cells" / cell.key for cell in cells]
    if jobs == 1:
        yield from (cell.run(folder) for cell, folder in zip(cells, folders, strict=True))
        return
    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator", pre_dispatch=jobs)
        yield from parallel(delayed(_in_process)(cell, at) for cell, at in zip(cells, folders, strict=True))


def _in_process(cell: PaperCell, folder: Path) -> Finished:
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return cell.run(folder)
