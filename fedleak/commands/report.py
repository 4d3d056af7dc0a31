"""``fedleak report``: one page for several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedleak.commands.shared import shared_options
from fedleak.commands.shared.command import Command, Option, Options

if TYPE_CHECKING:
    from fedleak.reports.files import Format


@dataclass(frozen=True)
class ReportOptions(Options):
    """Values of the options of ``fedleak report``."""

    directories: Sequence[str]
    out: str = "runs/report"
    formats: Sequence["Format"] = ()
    persons: bool = False


def report(options: ReportOptions) -> int:
    """Joins the results of several runs into one page."""
    from fedleak.commands.shared.results_place import check_results_place, only_command
    from fedleak.reports.join import join_runs
    from fedleak.reports.results_folder import print_outputs, results_folder, results_in, shell_command

    check_results_place(options.out)
    runs = [Path(directory) for directory in options.directories]
    with results_folder(options.out) as folder, only_command(folder):
        join_runs(runs, folder, options.formats, persons=options.persons)
    print_outputs(results_in(folder), then=shell_command("report", "--help", why="formats for papers"))
    return 0


COMMAND = Command(
    heading="start here",
    place=12,
    summary="joins the results of several runs into one page",
    groups={
        "what to join": [
            Option(
                "directories",
                "folders of runs; the first is the reference of what changed",
                required=True,
                parsing={"metavar": "RUN", "nargs": "+"},
            )
        ],
        shared_options.WRITTEN: [
            shared_options.out("folder of the page", "runs/report"),
            shared_options.FORMATS,
            shared_options.PERSONS,
        ],
    },
    options=ReportOptions,
    run=report,
)
