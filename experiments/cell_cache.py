"""File of a finished cell: its scores, a stamp of what they depend on, and a checksum."""

import dataclasses
import hashlib
import inspect
import pydoc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.runner import Evaluation
from evaluation.stored import DamagedError, hashed, read_evaluation, write_evaluation
from protocol.provenance import ROOMS, commit, source_hash, versions

_OURS = (*ROOMS, "lightning", "torch")
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
    more = {"commit": commit(), "stamp": dataclasses.asdict(stamp), "seconds": finished.seconds}
    write_evaluation(path, finished.evaluation, **more)


def read_cell(path: Path, stamp: Stamp) -> Finished | None:
    """Cell that an earlier run finished, None if there is none.

    Args:
        path: file of the cell.
        stamp: stamp of the cell as it would be run now.

    Raises:
        StaleError: the file is damaged, or of another table, other data or other code.
    """
    try:
        evaluation, more = read_evaluation(path)
        changed, finished = stamp.changed(more["stamp"]), Finished(evaluation, more["seconds"], read_back=True)
    except FileNotFoundError:
        return None
    except (DamagedError, KeyError, AttributeError) as error:
        raise StaleError(f"its {path.name} is {error}") from None
    if changed:
        raise StaleError(f"its {' and '.join(changed)} changed since")
    return finished


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
