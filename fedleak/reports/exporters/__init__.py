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
    members = vars(importlib.import_module(f"{__name__}.{name.replace('-', '_')}")).values()
    kinds = [member for member in members if isinstance(member, type) and issubclass(member, Exporter)]
    named = [kind for kind in kinds if vars(kind).get("name") == name]
    require(named, f"an exporter named {name} in a file of its name", "none", "Name the file after the exporter.")
    return named[0]


EXPORTERS = named.Kind(
    base=Exporter,
    noun="an exporter",
    names=lambda: NAMES,
    class_of=exporter_named,
    option="--to.",
)
"""Exporters, which people name by ``--to``."""

__all__ = ["EXPORTERS", "NAMES", "Exporter", "exporter_named"]
