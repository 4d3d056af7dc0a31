"""``fedleak reproduce``: a table of a paper."""

import sys
import time
from pathlib import Path
from typing import Any

from fedleak.commands.results_place import check_results_place
from fedleak.core.errors import InputError
from fedleak.core.places import CONFIGS, moved_table, table_files
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.processes import default_jobs
from fedleak.evaluation.reasons import nothing_scored
from fedleak.reports.files import Format
from fedleak.reports.results_folder import print_outputs, results_in, shell_command
from fedleak.reports.wandb_log import shows_in_wandb
from fedleak.reports.write_run import combine, write_run
from fedleak.tables.overrides import near
from fedleak.tables.running import joined_fingerprints, run_table
from fedleak.tables.table import Choice, Scale, read_table

_FOLDERS = "configs/paper and configs/table"


def reproduce(
    config: str,
    root: str | None = None,
    data: str | None = None,
    victims: int | None = None,
    seeds: int = 1,
    scale: Scale = "small",
    out: str | None = None,
    jobs: int | None = None,
    part: str | None = None,
    wandb: str | None = None,
    set: dict[str, Any] | None = None,
    also: list[str] | None = None,
    dry_run: bool = False,
    format: list[Format] | None = None,
    persons: bool = False,
) -> int:
    """Computes a paper's table; finished trainings and cells are cached, so an interrupted run can resume.

    A cached cell is used only if its table, its data, the code and the packages have not changed.
    """
    start = time.perf_counter()
    table = read_table(_file(config))
    directory = Path(out or f"runs/{table.name}")
    jobs = jobs or table.jobs or default_jobs()
    choice = Choice(
        root=root,
        data=data,
        scale=scale,
        seeds=seeds,
        victims=victims,
        overrides=set or {},
        attacks=also or [],
        out=directory,
        progress=jobs == 1,
    )
    check_results_place(directory, holds_files=out is not None)
    cells = table.cells(choice)
    if dry_run:
        print("\n".join(line for cell in cells for line in [f"# {cell.key}", *cell.commands()]))
        return 0
    done = run_table(cells, jobs=jobs, name=table.name, part=part)
    if part is not None:
        print(f"part {part}: {len(done)} of {len(cells)} cells")
        print_outputs({"cells": [directory / "cells"]}, then="the same command without --part, after all parts")
        return 0
    evaluation = combine([finished.evaluation for _, finished in done])
    if evaluation.scores.empty:
        raise nothing_scored(evaluation.missing, [one for cell in cells for one in cell.make_attacks().values()])
    write_run(
        AuditResult(evaluation, table.metrics, joined_fingerprints(cells), seconds=time.perf_counter() - start),
        directory=directory,
        experiment=table.name,
        read_back=[cell.key for cell, finished in done if finished.read_back],
        shows=shows_in_wandb(wandb, directory),
        formats=format or (),
        persons=persons,
    )
    print_outputs(results_in(directory), then=shell_command("report", directory, "RUN", why="joins it with other runs"))
    return 0


def _file(config: str) -> Path:
    """File of a table, which is given by its path, by its name, or by the path that it had in an earlier version."""
    path, tables = Path(config), table_files()
    if path.is_file():
        return path
    if config in tables:
        return tables[config]
    if (current := moved_table(path)) is not None:
        print(f"{config} has moved: its name, {path.stem}, is enough", file=sys.stderr)
        return current
    way_out = near(path.stem, list(tables)) or f"`ls {CONFIGS / 'paper'}/* {CONFIGS / 'table'}` lists the tables."
    raise InputError(expected=f"the file of a table, or a name in {_FOLDERS}", found=repr(config), way_out=way_out)
