"""Output whose reader has gone, as after ``fedleak list | head -1``."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_without_reader() -> Iterator[None]:
    """Ends the command without a message, with the exit status of SIGPIPE, if nobody reads its output any more.

    The signal itself would also end a process that writes to a closed socket, such as that of Weights & Biases.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        sys.exit(128 + signal.SIGPIPE)


def _reader_has_gone() -> bool:
    if sys.stdout is None:
        return False
    # POLLERR on the writing end of a pipe: nobody has its reading end open. It is reported without being asked for (0).
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
