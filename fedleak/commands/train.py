"""``fedleak train``: ``fedleak train fit --config configs/train/fncf_movielens.yaml --data.root DIR``."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from fedleak.commands.shared.command import CommandWithParser
from fedleak.core.closed_output import silent_without_reader
from fedleak.core.private_files import private_files
from fedleak.core.signals import Stopped, Stopping, die_with_parent, end_with_parent, ends_on_signals, leave
from fedleak.training.lightning.kept_help import is_kept, kept_help

_LAUNCHER = "FEDLEAK_LAUNCHER"
"""Environment variable with the number of the process from which Lightning starts the others."""
_GRACE = 3.0
"""Seconds in which a process of several may get the signal that has already ended another one."""


@contextmanager
def ends_with_launcher() -> Iterator[None]:
    """Ends this process, one of several of a training, with the one that started it; names this one to those it starts.

    Under SLURM, which ends all processes of a job step itself, nothing is done.
    """
    launcher = os.environ.get(_LAUNCHER, "")
    if "LOCAL_RANK" in os.environ and launcher.isdecimal() and int(launcher) != os.getpid():
        die_with_parent(int(launcher))
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(os.getppid())
    os.environ[_LAUNCHER] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(_LAUNCHER, None)


def _main(args: Sequence[str] | None, stopping: Stopping) -> None:
    from fedleak.tables.training import main

    main(None if args is None else list(args), stopping)


def run(args: Sequence[str] | None = None) -> int:
    """The command: a clear message and exit status 2 for what a person can fix, 128 + n after signal n."""
    with (
        ends_with_launcher(),
        ends_on_signals(program="fedleak") as stopping,
        silent_without_reader(),
        private_files(),
    ):
        try:
            words = list(sys.argv[1:] if args is None else args)
            if words in (["--help"], ["-h"]):
                from fedleak.training.lightning.train_parser import overview

                overview().print_help()
            elif is_kept(words):
                print(kept_help(words, lambda: _main(args, stopping)), end="")
            else:
                _main(args, stopping)
        except (Exception, Stopped) as error:
            from fedleak.training.lightning.error_reports import refusal_in

            refusal = refusal_in(error)
            grace = _GRACE if refusal is None and "LOCAL_RANK" in os.environ else 0.0
            if stopping.asked_within(grace):
                # A library's error after the signal, e.g. that another process has ended, adds nothing.
                assert stopping.asked is not None
                stopping.say(stopping.asked)
                return 128 + stopping.asked
            if refusal is None:
                raise
            stopping.forward(signal.SIGTERM)
            print(f"fedleak: {refusal}", file=sys.stderr)
            return 2
    return 0


def command() -> NoReturn:
    """The program that an installation puts on the path."""
    leave(run())


COMMAND = CommandWithParser(
    heading="recordings",
    place=20,
    summary="trains a model on federated clients, and records what the server sees: fedleak train fit --help",
    run=run,
)

if __name__ == "__main__":
    command()
