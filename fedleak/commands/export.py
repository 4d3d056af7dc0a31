"""``fedleak export``: results of a run in a format, or to a service, of others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared.command import Command, Option, Options

if TYPE_CHECKING:
    from fedleak.reports.exporters import Exporter


@dataclass(frozen=True)
class ExportOptions(Options):
    """Values of the options of ``fedleak export``."""

    directory: str
    to: str
    to_arguments: Mapping[str, Any] = field(default_factory=dict)


def export(options: ExportOptions) -> int:
    """Writes or sends the results in a folder of a run, which an audit, a run or a table wrote."""
    from fedleak.evaluation.stored_run import read_results

    exporter = make_exporter(options.to, options.to_arguments)
    folder = Path(options.directory)
    print(f"{exporter.name}: {exporter.export(read_results(folder), folder)}")
    return 0


def make_exporter(name: str, arguments: Mapping[str, Any]) -> "Exporter":
    """The exporter of a name or class path.

    Raises:
        InputError: there is none, or it does not take these options.
    """
    from fedleak.core import named
    from fedleak.reports.exporters import EXPORTERS

    return named.make(EXPORTERS, name, arguments)


COMMAND = Command(
    heading="results",
    place=40,
    summary="writes the results of a run in a format of others, or sends them to a service",
    groups={
        "what to export": [
            Option("directory", "folder of a run", required=True, parsing={"metavar": "RUN"}),
            Option(
                "--to",
                "an exporter by its name, e.g. sarif or bundle, see docs/audit/evidence.md, or by a class path such as"
                " my_package.MyExporter; its options are --to.NAME VALUE",
                required=True,
                further="to_arguments",
                parsing={"metavar": "NAME"},
            ),
        ]
    },
    options=ExportOptions,
    run=export,
)
