"""File of a finished cell: its scores, a stamp of what they depend on, and a checksum."""

import dataclasses
import hashlib
import inspect
import json
import pydoc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from datamodules.io.files import write_whole
from evaluation.drawing import Drawing
from evaluation.runner import Evaluation
from evaluation.scores import Line
from protocol.provenance import commit, source_hash, versions

FORMAT = 4
_BODY = ("scores", "lines", "roc", "missing", "figures", "profiles", "details", "seconds")
_OURS = ("attacks", "callbacks", "datamodules", "defenses", "evaluation", "lightning", "modules", "torch")
"""Packages whose source is hashed, or whose version is known."""


class StaleError(Exception):
    """File of a cell that cannot be reused; the message has the reason."""


@dataclass(frozen=True)
class Stamp:
    """Hashes of what the numbers of a cell depend on.

    Attributes:
        table: the cell with its attacks, arguments, limits, scale, victims and seed.
        data: fingerprint of the data.
        code: source files, committed or not, with those of attacks from other packages.
        packages: versions of Python and the packages.
    """

    table: str
    data: str
    code: str
    packages: str

    @classmethod
    def of(cls, cell: Any, fingerprint: Mapping[str, str]) -> "Stamp":
        """Stamp of a `Cell` on data with a fingerprint, with the current code and packages."""
        code = hashed([source_hash(), *_foreign_sources(cell)])
        return cls(hashed(cell.identity()), hashed(dict(fingerprint)), code, hashed(versions()))

    def changed(self, other: Mapping[str, Any]) -> list[str]:
        """Names of the hashes that differ from another stamp's."""
        return [name for name, value in dataclasses.asdict(self).items() if other.get(name) != value]


@dataclass(frozen=True)
class Finished:
    """Finished cell.

    Attributes:
        evaluation: scores.
        seconds: seconds by stage, ``train`` and ``attack``.
        read_back: whether an earlier run finished it.
    """

    evaluation: Evaluation
    seconds: dict[str, float]
    read_back: bool = False


def write_cell(path: Path, stamp: Stamp, finished: Finished) -> None:
    """Writes the file of a finished cell."""
    evaluation = finished.evaluation
    body = {
        "scores": _columns(evaluation.scores),
        "lines": {label: dataclasses.asdict(line) for label, line in evaluation.lines.items()},
        "roc": {label: [rates.tolist(), count] for label, (rates, count) in evaluation.roc.items()},
        "missing": evaluation.missing,
        "figures": [figure.record() for figure in evaluation.figures],
        "profiles": _columns(evaluation.profiles),
        "details": {label: _columns(table) for label, table in evaluation.details.items()},
        "seconds": finished.seconds,
    }
    content = {"format": FORMAT, "commit": commit(), "stamp": dataclasses.asdict(stamp), "sha256": hashed(body), **body}
    write_whole(path, json.dumps(content).encode())


def read_cell(path: Path, stamp: Stamp) -> Finished | None:
    """Cell that an earlier run finished, None if there is none.

    Args:
        path: file of the cell.
        stamp: stamp of the cell as it would be run now.

    Raises:
        StaleError: the file is damaged, or of another table, other data or other code.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r:.40}")
        changed = stamp.changed(content["stamp"])
        body = {key: content[key] for key in _BODY}
        whole = content["sha256"] == hashed(body)
        finished = Finished(_evaluation(body), body["seconds"], read_back=True) if whole and not changed else None
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # Earlier versions wrote neither format nor stamp.
        raise StaleError(
            f"its {path.name} is damaged, or another version's ({type(error).__name__}: {error!s:.60})"
        ) from None
    if changed:
        raise StaleError(f"its {' and '.join(changed)} changed since")
    if finished is None:
        raise StaleError(f"its {path.name} is damaged (other bytes than were written)")
    return finished


def _evaluation(body: Mapping[str, Any]) -> Evaluation:
    return Evaluation(
        scores=_table(body["scores"]),
        lines={label: Line(**fields) for label, fields in body["lines"].items()},
        roc={label: (torch.tensor(rates, dtype=torch.float64), count) for label, (rates, count) in body["roc"].items()},
        missing=dict(body["missing"]),
        figures=[Drawing.of_record(figure) for figure in body["figures"]],
        profiles=_table(body["profiles"]),
        details={label: _table(columns) for label, columns in body["details"].items()},
    )


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """Types and values by column; JSON distinguishes 1, 1.0, "1" and null."""
    return {str(name): [str(column.dtype), column.tolist()] for name, column in table.items()}


def _table(columns: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=kind) for name, (kind, values) in columns.items()})


def _foreign_sources(cell: Any) -> list[str]:
    """Hashes of the source files of the cell's classes from other packages."""
    kinds = {type(attack) for attack in cell.make_attacks().values()}
    kinds |= {pydoc.locate(path) for path in _class_paths(cell.training)}  # type: ignore[misc]
    files = {inspect.getfile(kind) for kind in kinds if kind.__module__.partition(".")[0] not in _OURS}
    return [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in sorted(files)]


def _class_paths(content: Any) -> Iterator[str]:
    """Class paths in a configuration."""
    if isinstance(content, Mapping):
        path = content.get("class_path")
        if isinstance(path, str) and "." in path:
            yield path
        content = content.values()
    if isinstance(content, Iterable) and not isinstance(content, str):
        for value in content:
            yield from _class_paths(value)


def hashed(content: Any) -> str:
    """SHA-256 of the JSON of some content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
