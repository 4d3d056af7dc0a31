"""Runs the cells of a table, one after the other or several at once."""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from experiments.base import PaperCell
from experiments.cell_cache import Finished, Stamp
from protocol.errors import InputError
from signals import end_with_parent


def default_jobs(*, small_cells: bool) -> int:
    """How many cells to run at once: as many as there are cores where each keeps one core busy."""
    return len(os.sched_getaffinity(0)) if small_cells else 1


def part_of(cells: Sequence[PaperCell[Any]], part: str | None) -> list[PaperCell[Any]]:
    """Every N-th cell from the I-th on.

    Args:
        cells: all cells.
        part: ``I/N``, I from 0 to N - 1; None for all cells.

    Raises:
        InputError: it is no such part, or holds no cell.
    """
    if part is None:
        return list(cells)
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if found is None or int(found[1]) >= int(found[2]):
        raise InputError(
            expected="--part I/N with I from 0 to N - 1", found=part, way_out="The parts of two are 0/2 and 1/2."
        )
    chosen = list(cells)[int(found[1]) :: int(found[2])]
    if not chosen:
        raise InputError(
            expected=f"a part of {len(cells)} cells",
            found=f"{part}, which is none of them",
            way_out="Take fewer parts.",
        )
    return chosen


def run_cells(
    cells: Sequence[PaperCell[Any]],
    directory: Path,
    *,
    fingerprints: Mapping[str, Mapping[str, str]],
    jobs: int,
    name: str,
) -> list[Finished]:
    """Runs every cell, those finished before excepted, with a bar and the time left.

    Args:
        cells: what to run.
        directory: where each cell keeps its recording and scores, in ``cells/KEY``.
        fingerprints: of the data, by the cells' names for them.
        jobs: cells at once, each in a process of its own with one thread; 1 for this process with all threads.
        name: what the bar is called.
    """
    done = []
    work = [(cell, directory / "cells" / cell.key, Stamp.of(cell, fingerprints[cell.data])) for cell in cells]
    with tqdm(_results(work, jobs), total=len(cells), desc=name, unit="cell") as bar:
        for cell, finished in zip(cells, bar, strict=True):
            spent = f"trained in {finished.seconds['train']:.1f} s, attacked in {finished.seconds['attack']:.1f} s"
            bar.write(f"{cell.key}: {'read back' if finished.read_back else spent}", file=sys.stderr)
            done.append(finished)
    return done


def _results(work: Sequence[tuple[PaperCell[Any], Path, Stamp]], jobs: int) -> Iterator[Finished]:
    if jobs == 1:
        yield from (cell.run(folder, stamp) for cell, folder, stamp in work)
        return
    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=jobs, return_as="generator", pre_dispatch=jobs)
        yield from parallel(delayed(_in_process)(*one) for one in work)


def _in_process(cell: PaperCell[Any], folder: Path, stamp: Stamp) -> Finished:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends the workers
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return cell.run(folder, stamp)
