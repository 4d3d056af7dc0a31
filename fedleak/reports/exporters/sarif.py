"""Exporter of SARIF 2.1.0, see `fedleak.reports.sarif_log`."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from fedleak.core.io.files import write_whole
from fedleak.evaluation.run import Run
from fedleak.reports.exporters.exporter import Exporter
from fedleak.reports.sarif_log import sarif_log

GATE = "gate.sarif"
"""Name of the file that an audit with limits writes."""


@dataclass(frozen=True)
class Sarif(Exporter):
    """SARIF 2.1.0 file: a rule per attack, and a result per limit.

    Attributes:
        file: path of the file; ``audit.sarif`` in the folder of the run by default.
        results: ``all``, or only the ``alerts``, which are limits that are exceeded, undecided or unchecked. GitHub
            shows every result as an alert, whatever its ``kind``.
    """

    name: ClassVar[str] = "sarif"

    file: str | None = None
    results: Literal["all", "alerts"] = "all"

    def export(self, run: Run, directory: Path) -> str:
        path = directory / "audit.sarif" if self.file is None else Path(self.file)
        write_whole(path, self.content(run))
        return str(path)

    def content(self, run: Run) -> bytes:
        """Content of the file."""
        return sarif_log(run, alerts=self.results == "alerts")


def write_gate_alerts(directory: Path, run: Run | None) -> None:
    """Writes gate.sarif with the alerts of a run with limits, or removes that of an earlier run."""
    if run is not None and run.gate:
        Sarif(str(directory / GATE), results="alerts").export(run, directory)
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (directory / GATE).unlink()
