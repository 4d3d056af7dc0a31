"""Files that may come from strangers: regular ones only, of bounded size, and plain values in them.

A recording, a dump or a data set is opened where it was unpacked: instead of a file there may be a pipe that never
ends, a link to a device, a name that leads out of the folder, or a small archive that unpacks to more than there is
memory. What is opened here is none of these.
"""

import json
import math
import stat
from pathlib import Path
from typing import Any, NoReturn

from protocol.errors import InputError

MOST_TEXT = 2**26
"""Bytes of a manifest or of a list of names."""
MOST_UNPACKED = 2**28
"""Bytes that any file may unpack to."""
MOST_RATIO = 100
"""Times its own size that a larger file may unpack to; weights and images compress to a third at the best."""
_DEEPEST = 32
_MOST_VALUES = 2 * 10**6
_LONGEST_TEXT = 10**5
_INT64 = 2**63
_WAY_OUT = "Give a regular file; copy what a link leads to, with the rest of the folder."


def regular_file(path: Path, *, way_out: str = _WAY_OUT) -> int:
    """Refuses what is no regular file, following links: a folder, a pipe, a device.

    Args:
        path: of the file.
        way_out: what to do where there is none.

    Returns:
        Its size in bytes.

    Raises:
        InputError: it is missing or no regular file.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        raise InputError(expected=f"the file {path.name}", found=f"nothing at {path}", way_out=way_out) from None
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            expected=f"{path.name} as a regular file",
            found=f"a folder, a pipe or a device at {path}",
            way_out=way_out,
        )
    return found.st_size


def read_bounded(path: Path, *, most: int = MOST_TEXT, way_out: str = _WAY_OUT) -> bytes:
    """The content of a regular file of bounded size.

    Args:
        path: of the file.
        most: bytes.
        way_out: what to do where it is missing or too large.

    Raises:
        InputError: it is missing, no regular file, too large, or cannot be read.
    """
    size = regular_file(path, way_out=way_out)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(expected=f"a readable file {path.name}", found=str(error), way_out=way_out) from None
    if len(content) > most:
        raise InputError(
            expected=f"{path.name} of at most {most} bytes", found=f"{size} bytes at {path}", way_out=way_out
        )
    return content


def unpacked_limit(size: int) -> int:
    """Bytes that a file of some size may unpack to."""
    return max(MOST_UNPACKED, MOST_RATIO * size)


def inside(folder: Path, name: object, *, what: str) -> Path:
    """A file that a manifest names, which must lie in the manifest's folder.

    Args:
        folder: where the manifest lies.
        name: a relative path.
        what: whose file, for the message.

    Raises:
        InputError: the name is none, is absolute, or leads out of the folder, also by a link.
    """
    right = isinstance(name, str) and 0 < len(name) < 1000 and name.isprintable()
    try:
        path = folder / str(name)
        within = right and path.resolve().is_relative_to(folder.resolve()) and ".." not in path.parts
    except (OSError, RuntimeError, ValueError):
        within = False
    if not within or Path(str(name)).is_absolute():
        raise InputError(
            expected=f"the name of a file in {folder} as {what}",
            found=repr(name),
            way_out="Copy the file next to the manifest, and name it from there.",
        )
    return path


def parse_json(content: bytes | str, *, where: str) -> Any:
    """A value of JSON, with no key twice, no NaN or infinity, and nothing that is nested too deeply.

    Args:
        content: the text.
        where: its file or line, for the message.

    Raises:
        ValueError: it is no such JSON; the message says why.
    """
    try:
        value = json.loads(content, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("values that are nested too deeply") from None
    problem = strange_value(value)
    if problem is not None:
        raise ValueError(f"{problem} in {where}")
    return value


def strange_value(value: Any) -> str | None:
    """What JSON cannot hold in a value that YAML or a program made, None where it is plain.

    Also refused are numbers beyond 64 bits, texts that cannot be written as UTF-8, what is nested more than 32 deep,
    and what has more than two million values, counting each time that an alias of YAML repeats them.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    seen = 0
    while waiting:
        one, depth = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES:
            return f"more than {_MOST_VALUES} values"
        if depth > _DEEPEST:
            return "values that are nested too deeply"
        if isinstance(one, dict):
            waiting += [(part, depth + 1) for pair in one.items() for part in pair]
            if not all(isinstance(key, str) for key in one):
                return f"a key that is no text: {_short(next(key for key in one if not isinstance(key, str)))}"
        elif isinstance(one, list | tuple):
            waiting += [(part, depth + 1) for part in one]
        elif (problem := _strange_scalar(one)) is not None:
            return problem
    return None


def _strange_scalar(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -_INT64 <= value < 2 * _INT64 else "a whole number of more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"the number {value}"
    if isinstance(value, str):
        return None if len(value) <= _LONGEST_TEXT and _is_unicode(value) else f"the text {_short(value)}"
    return f"a {type(value).__name__} where a text or a number is needed ({_short(value)})"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: Any) -> str:
    return ascii(value)[:60] if isinstance(value, str | bytes | int | float) else str(value)[:60]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)[:60]!r} twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}, which JSON does not have")
