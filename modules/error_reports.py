"""Which errors are a person's: what Lightning, the disk or the memory refuses, in the words of one line.

Everything else is a defect and keeps its traceback.
"""

import errno
import traceback

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from protocol.errors import InputError, input_error_in

_OF_THE_DISK = frozenset(
    {
        *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO),
    }
)
_LIBRARIES = ("/lightning/", "/jsonargparse/", "/wandb/")
_LONGEST = 400


def refusal_in(error: BaseException) -> InputError | None:
    """The person's error that an exception stands for; None for a defect.

    Args:
        error: with its causes.
    """
    given = input_error_in(error)
    if given is not None:
        return given
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _OF_THE_DISK:
            where = cause.filename or "the run's folder"
            return InputError(
                expected=f"a file or folder that can be used at {where}",
                found=str(cause.strerror).lower(),
                way_out="Give another --trainer.default_root_dir, make room, or correct the path.",
            )
        if _is_of_memory(cause):
            return InputError(
                expected="a model and clients that fit into memory",
                found=in_one_line(str(cause)),
                way_out="Give smaller sizes, or fewer clients at once (model.init_args.local.clients_per_chunk).",
            )
        if isinstance(cause, MisconfigurationException | ImportError | ValueError) and _raised_by_a_library(cause):
            return refused(cause)
    return None


def refused(error: BaseException) -> InputError:
    """What a library says of an option, as a person's error."""
    return InputError(
        expected="options that Lightning can use on this machine",
        found=in_one_line(str(error)),
        way_out="Change or remove that option.",
    )


def in_one_line(text: str) -> str:
    """Without line breaks and final stop, cut where it is long."""
    line = " ".join(text.split())
    return (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...").rstrip(".!") or "no reason given"


def _causes(error: BaseException | None) -> list[BaseException]:
    """An error and what it was made of, the first cause first."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found[::-1]


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _raised_by_a_library(error: BaseException) -> bool:
    """Whether a ``raise`` of a library's is where the error comes from: it looked at an option, and refused it."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        bool(frames)
        and (frames[-1].line or "").startswith("raise")
        and any(part in frames[-1].filename.replace("\\", "/") for part in _LIBRARIES)
    )
