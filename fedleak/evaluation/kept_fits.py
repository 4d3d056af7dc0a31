"""Which attacks fit a recording, kept in the user's cache: to find it, views of the recording are made."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from fedleak.core.places import PACKAGE
from fedleak.core.source_cache import keep, read_kept, source_key
from fedleak.evaluation.reasons import Reason, reason_of_plain, reason_to_plain

_NAME = "fits"


def kept_misfits(folder: Path, names: Sequence[str]) -> dict[str, Reason]:
    """`fedleak.evaluation.fitting.misfits` of attacks by ``family/name``, read from the cache for a known recording.

    What is kept holds until a source file or a file of the recording changes. It is that of the last recording asked
    for. Of a recording that its training still writes, nothing is kept.

    Raises:
        InputError: the folder is no complete recording.
    """
    rooms = sorted(init.parent.name for init in PACKAGE.glob("*/__init__.py"))
    key = source_key(rooms, *names, *_facts(folder))
    cached = read_kept(_NAME, key)
    if isinstance(cached, dict):
        with contextlib.suppress(ValueError):  # a damaged one
            return {name: reason_of_plain(content) for name, content in cached.items()}
    # These import torch.
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.registry import REGISTRY
    from fedleak.recordings.recording import Recording

    recording = Recording(folder)
    missing = misfits(recording, [REGISTRY[name]() for name in names])
    # A recording that is still written has other facts soon.
    if recording.closed:
        keep(_NAME, key, {name: reason_to_plain(reason) for name, reason in missing.items()})
    return missing


def _facts(folder: Path) -> list[str]:
    """Names, sizes and times of the files of a recording."""
    facts = [str(folder.resolve())]
    for part in (folder, folder / "rounds", folder / "truth"):
        if part.is_dir():
            for path in sorted(part.iterdir()):
                status = path.stat()
                facts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return facts
