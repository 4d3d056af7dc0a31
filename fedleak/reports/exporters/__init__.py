"""Exporters: results of a run in formats and services of others, one file each, named after the exporter."""

import importlib
from pathlib import Path

from fedleak.core import named
from fedleak.core.errors import require
from fedleak.reports.exporters.exporter import Exporter

NAMES = tuple(
    path.stem.replace("_", "-")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem not in ("__init__", "exporter")
)
"""Name of every exporter of this package."""


def exporter_named(name: str) -> type[Exporter]:
    """The exporter of a name among `NAMES`; the others, which may take long to import, are not imported."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    exporters: list[type[Exporter]] = []
    for member in vars(module).values():
        is_exporter = isinstance(member, type) and issubclass(member, Exporter)
        if is_exporter and vars(member).get("name") == name:
            exporters.append(member)
    require(exporters, f"an exporter named {name} in a file of its name", "none", "Name the file after the exporter.")
    return exporters[0]


EXPORTERS = named.Kind(
    base=Exporter,
    noun="an exporter",
    names=lambda: NAMES,
    class_of=exporter_named,
    option="--to.",
)
"""Exporters, which people name by ``--to``."""

__all__ = ["EXPORTERS", "NAMES", "Exporter", "exporter_named"]
