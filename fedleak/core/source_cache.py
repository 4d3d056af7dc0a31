"""What follows from the sources of fedleak alone, kept in the user's cache: later processes read it at once."""

import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from fedleak.core.cache import cache_folder
from fedleak.core.places import PACKAGE


def source_key(rooms: Sequence[str], *more: str) -> str:
    """Hash of the names, sizes and times of the source files of some rooms, and of further texts."""
    facts = []
    for room in rooms:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            status = path.stat()
            facts.append((str(path), status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr((facts, more)).encode()).hexdigest()


def read_kept(name: str, key: str) -> Any:
    """What `keep` wrote with the same key; None if there is nothing, or it is damaged."""
    with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError, KeyError):
        text = (cache_folder() / _file(name)).read_text(encoding="utf-8")
        cached = json.loads(text)
        # Another key: the sources have changed since.
        if cached["key"] == key:
            return cached["content"]
    return None


def keep(name: str, key: str, content: Any) -> None:
    """Writes plain values under a name and a key; a folder that cannot be written to is no error."""
    with contextlib.suppress(OSError, RuntimeError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": key, "content": content})
        (cache_folder() / _file(name)).write_text(text, encoding="utf-8")


def _file(name: str) -> str:
    """Name of a file, of which each checkout has its own."""
    checkout = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:12]
    return f"{name}-{checkout}.json"
