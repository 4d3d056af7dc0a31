"""``fedleak export``: results of a run in a format, or to a service, of others."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedleak.core.class_paths import class_at
from fedleak.core.errors import InputError
from fedleak.core.field_types import typed_arguments
from fedleak.evaluation.stored_run import read_results
from fedleak.reports.exporters import NAMES, Exporter, exporter_named


def export(directory: str, to: str, to_arguments: Mapping[str, Any] | None = None) -> int:
    """Writes or sends the results in a folder of a run.

    Args:
        directory: folder that an audit, a run or a table wrote.
        to: name of an exporter, or the path of its class.
        to_arguments: its options.
    """
    exporter = make_exporter(to, to_arguments or {})
    folder = Path(directory)
    print(f"{exporter.name}: {exporter.export(read_results(folder), folder)}")
    return 0


def make_exporter(name: str, arguments: Mapping[str, Any]) -> Exporter:
    """The exporter of a name or class path.

    Raises:
        InputError: there is none, or it does not take these options.
    """
    if "." in name:
        kind = class_at(name, Exporter)
    elif name in NAMES:
        kind = exporter_named(name)
    else:
        near = difflib.get_close_matches(name, NAMES, n=1)
        way_out = f"Did you mean {near[0]}?" if near else "Write one of them."
        raise InputError(expected=f"--to {', '.join(NAMES)} or a class path", found=name, way_out=way_out)
    try:
        return kind(**typed_arguments(kind, arguments))
    except (TypeError, ValueError) as error:
        way_out = "Correct --to.NAME VALUE, see docs/audit/evidence.md."
        raise InputError(expected=f"options that {name} takes", found=str(error), way_out=way_out) from None
