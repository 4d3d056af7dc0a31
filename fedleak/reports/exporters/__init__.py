"""Exporters: results of a run in formats and services of others, one file each."""

import sys

from fedleak.core.class_paths import named_classes
from fedleak.reports.exporters.exporter import Exporter

EXPORTERS: dict[str, type[Exporter]] = named_classes(sys.modules[__name__], Exporter)
"""Every exporter of this package, by its name."""

__all__ = ["EXPORTERS", "Exporter"]
