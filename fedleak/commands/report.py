"""``fedleak report``: one page for several runs."""

from pathlib import Path

from fedleak.commands.results_place import check_results_place, only_command
from fedleak.reports.files import Format
from fedleak.reports.join import join_runs
from fedleak.reports.results_folder import print_outputs, results_folder, results_in, shell_command


def report(
    directories: list[str],
    out: str = "runs/report",
    format: list[Format] | None = None,
    persons: bool = False,
) -> int:
    """Joins the results of several runs into one page."""
    check_results_place(out)
    with results_folder(out) as folder, only_command(folder):
        join_runs([Path(directory) for directory in directories], folder, format or (), persons=persons)
    print_outputs(results_in(folder), then=shell_command("report", "--help", why="formats for papers"))
    return 0
