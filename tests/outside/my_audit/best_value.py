"""The largest mean of a metric in one line of text, e.g. for a chat."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedleak.evaluation.run import Run
from fedleak.reports.exporters import Exporter


@dataclass(frozen=True)
class BestValue(Exporter):
    """A line with the attack that has the largest mean of a metric.

    Attributes:
        metric: the metric.
    """

    name: ClassVar[str] = "best-value"

    metric: str = "auc"

    def export(self, run: Run, directory: Path) -> str:
        own = run.results[run.results["metric"] == self.metric].sort_values("mean").iloc[-1]
        path = directory / "best.txt"
        path.write_text(f"{own['attack']} {own['mean']:.3f}\n", encoding="utf-8")
        return str(path)
