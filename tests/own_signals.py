"""Signals of a process that a test starts: what a background job or nohup ignores, its children ignore too."""

import signal

_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def takes_signals() -> None:
    """Takes the signals again that end a process; for ``preexec_fn``, between fork and exec."""
    for number in _ASKED:
        signal.signal(number, signal.SIG_DFL)
