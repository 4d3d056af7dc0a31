"""``fedleak reproduce``: a table of a paper."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared import shared_options, value_types
from fedleak.commands.shared.command import Command, Option, Options, flag
from fedleak.core.errors import InputError
from fedleak.core.places import CONFIGS, moved_table, table_files
from fedleak_recorder.nearest import did_you_mean

if TYPE_CHECKING:
    from fedleak.reports.files import Format
    from fedleak.tables.table import Choice, Scale

_FOLDERS = "configs/paper and configs/table"


@dataclass(frozen=True)
class ReproduceOptions(Options):
    """Values of the options of ``fedleak reproduce``."""

    config: str
    root: str | None = None
    data: str | None = None
    scale: "Scale" = "small"
    also: Sequence[str] = ()
    victims: int | None = None
    out: str | None = None
    formats: Sequence["Format"] = ()
    persons: bool = False
    wandb: str | None = None
    seeds: int = 1
    jobs: int | None = None
    dry_run: bool = False
    overrides: Sequence[tuple[str, Any]] = ()
    part: str | None = None
    engine: str = shared_options.DEFAULT_ENGINE
    engine_arguments: Mapping[str, Any] = field(default_factory=dict)

    def choice(self, directory: Path, *, progress: bool) -> "Choice":
        """What these options choose of a table; `progress` is whether each cell shows a bar."""
        from fedleak.tables.table import Choice

        return Choice(
            root=self.root,
            data=self.data,
            scale=self.scale,
            seeds=self.seeds,
            victims=self.victims,
            overrides=dict(self.overrides),
            attacks=self.also,
            out=directory,
            progress=progress,
        )


def reproduce(options: ReproduceOptions) -> int:
    """Computes a paper's table; finished trainings and cells are cached, so an interrupted run can resume.

    A cached cell is used only if its table, its data, the code and the packages have not changed.
    """
    from fedleak.commands.shared.results_place import check_results_place
    from fedleak.evaluation.auditing import AuditResult
    from fedleak.evaluation.engines import EngineOptions, engine_of
    from fedleak.evaluation.reasons import nothing_scored
    from fedleak.reports.results_folder import print_outputs, results_in, shell_command
    from fedleak.reports.wandb_log import shows_in_wandb
    from fedleak.reports.write_run import combine, write_run
    from fedleak.tables.running import joined_fingerprints, run_table
    from fedleak.tables.table import read_table

    start = time.perf_counter()
    table = read_table(_file(options.config))
    directory = Path(options.out or f"runs/{table.name}")
    engine_options = EngineOptions(
        folder=directory / "engine",
        jobs=options.jobs,
        most_on_one_machine=table.jobs,
        arguments=options.engine_arguments,
    )
    engine = engine_of(options.engine, engine_options)
    check_results_place(directory, holds_files=options.out is not None)
    cells = table.cells(options.choice(directory, progress=engine.in_this_process))
    if options.dry_run:
        for cell in cells:
            print("\n".join([f"# {cell.key}", *cell.commands()]))
        return 0
    cells_done = run_table(cells, engine=engine, name=table.name, part=options.part)
    # A part leaves its cells to the command that writes the table after all parts.
    if options.part is not None:
        print(f"part {options.part}: {len(cells_done)} of {len(cells)} cells")
        print_outputs({"cells": [directory / "cells"]}, then="the same command without --part, after all parts")
        return 0
    evaluation = combine([finished.evaluation for _, finished in cells_done])
    if evaluation.scores.empty:
        attacks = [attack for cell in cells for attack in cell.make_attacks().values()]
        raise nothing_scored(evaluation.missing, attacks)
    seconds = time.perf_counter() - start
    write_run(
        AuditResult(evaluation, table.metrics, joined_fingerprints(cells), seconds=seconds),
        directory=directory,
        experiment=table.name,
        read_back=[cell.key for cell, finished in cells_done if finished.read_back],
        shows=shows_in_wandb(options.wandb, directory),
        formats=options.formats,
        persons=options.persons,
    )
    print_outputs(results_in(directory), then=shell_command("report", directory, "RUN", why="joins it with other runs"))
    return 0


def _file(config: str) -> Path:
    """File of a table, which is given by its path, by its name, or by the path that it had in an earlier version."""
    path = Path(config)
    tables = table_files()
    if path.is_file():
        return path
    if config in tables:
        return tables[config]
    current = moved_table(path)
    if current is not None:
        print(f"{config} has moved: its name, {path.stem}, is enough", file=sys.stderr)
        return current
    how_to_list = f"`ls {CONFIGS / 'paper'}/* {CONFIGS / 'table'}` lists the tables."
    way_out = did_you_mean(path.stem, tables, how_to_list)
    raise InputError(expected=f"the file of a table, or a name in {_FOLDERS}", found=repr(config), way_out=way_out)


COMMAND = Command(
    heading="papers",
    place=50,
    summary="computes a paper's table: trainings, attacks, and the papers' numbers next to ours",
    groups={
        "what to compute": [
            Option(
                "config",
                "a table: its file, or its name in configs/paper, e.g. raifle_table5",
                required=True,
                parsing={"metavar": "TABLE"},
            ),
            Option(
                "--data.root",
                "folder of the data sets",
                "that of the table",
                aliases=("--root",),
                parsing={"dest": "root", "metavar": "DIR"},
            ),
            Option(
                "--data",
                "use only this data set: a folder's name, or the class path of a data module of the same kind",
                "those of the table",
                parsing={"metavar": "NAME"},
            ),
            Option(
                "--scale",
                "paper for all clients of every data set",
                "small",
                parsing={"choices": ("small", "paper")},
            ),
            shared_options.attack_names(
                "--also", "add these attacks to those of the table: names or class paths, with commas", "none"
            ),
            shared_options.victims("clients to attack in each cell, drawn at random", "those of the table"),
        ],
        shared_options.WRITTEN: [
            shared_options.out("folder of trainings, cells and results", "runs/TABLE"),
            shared_options.FORMATS,
            shared_options.PERSONS,
            shared_options.wandb("table and figures"),
        ],
        shared_options.LIMITS: [
            Option(
                "--seeds",
                "smallest number of trainings of each cell, from seed 0 on",
                "1",
                parsing={"type": value_types.at_least_one("--seeds"), "metavar": "N"},
            ),
            shared_options.jobs("trainings at the same time", "one per core, but for large trainings; 16 on SLURM"),
        ],
        shared_options.ADVANCED: [
            shared_options.ENGINE,
            flag("--dry-run", "print the commands of each cell without running them"),
            Option(
                "--set",
                "any key of a training in every cell, e.g. model.local.epochs=5. Repeatable",
                "none",
                parsing={
                    "action": "append",
                    "type": value_types.override,
                    "dest": "overrides",
                    "metavar": "KEY=VALUE",
                },
            ),
            shared_options.part(
                "every N-th training, from the I-th on, from 0, for several machines that share --out; run the command"
                " without it after all parts to write the report"
            ),
        ],
    },
    options=ReproduceOptions,
    run=reproduce,
    description="Finished trainings and cells are cached, so an interrupted run goes on where it stopped.",
)
