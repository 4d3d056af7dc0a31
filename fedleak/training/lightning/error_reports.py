"""Conversion of errors of Lightning, the file system and memory to `InputError`; other errors keep their traceback."""

import errno
import traceback

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from fedleak.core.errors import InputError, input_error_in

_OF_THE_DISK = frozenset(
    {
        *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO),
    }
)
_LIBRARIES = frozenset({"jsonargparse", "lightning", "wandb"})
"""Packages that check the options of a training."""
_NO_MEMORY = "can't allocate memory"
"""In torch's error for the machine's memory, for which it has no class as it has for that of a GPU."""
_LONGEST = 400


def refusal_in(error: BaseException) -> InputError | None:
    """Input error that caused an exception; None for a defect of the program.

    Args:
        error: the exception, with its causes.
    """
    input_error = input_error_in(error)
    if input_error is not None:
        return input_error
    # The first cause counts: later errors, e.g. of closing files, follow from it.
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _OF_THE_DISK:
            where = cause.filename or "the run's folder"
            return InputError(
                expected=f"a usable file or folder at {where}",
                found=str(cause.strerror).lower(),
                way_out="Give another --trainer.default_root_dir, make room, or correct the path.",
            )
        is_refused_allocation = isinstance(cause, RuntimeError) and _NO_MEMORY in str(cause)
        if is_refused_allocation or isinstance(cause, MemoryError | torch.OutOfMemoryError):
            return InputError(
                expected="a model and clients that fit into memory",
                found=in_one_line(str(cause)),
                way_out="Set smaller sizes, or train fewer clients at once (model.init_args.local.clients_per_chunk).",
            )
        if isinstance(cause, MisconfigurationException | ImportError | ValueError) and _raised_by_a_library(cause):
            return refused(cause)
    return None


def refused(error: BaseException) -> InputError:
    """Input error with the message of a library that rejects an option."""
    return InputError(
        expected="options that Lightning can use on this machine",
        found=in_one_line(str(error)),
        way_out="Change or remove that option.",
    )


def in_one_line(text: str) -> str:
    """Text without line breaks and final period, truncated."""
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[:_LONGEST]}..."
    return line.rstrip(".!") or "no reason given"


def _causes(error: BaseException | None) -> list[BaseException]:
    """Causes and contexts of an error and the error itself, first cause first."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes[::-1]


def _raised_by_a_library(error: BaseException) -> bool:
    """Whether an error comes from the code of a library that checks its options, not from what that calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return False
    module = str(frames[-1].f_globals.get("__name__"))
    return module.partition(".")[0] in _LIBRARIES
