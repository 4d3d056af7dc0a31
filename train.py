"""Federated training: ``python train.py fit --config configs/train/fncf_movielens.yaml --data.root DIR``."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from protocol.closed_output import silent_without_reader
from protocol.signals import Stopped, ends_on_signals, leave

_GRACE = 3.0
"""Seconds in which a process of several may get the signal that has already ended another one."""


def run(args: Sequence[str] | None = None) -> int:
    """The command: a clear message and exit status 2 for what a person can fix, 128 + n after signal n."""
    with ends_on_signals(program="train.py") as stopping, silent_without_reader():
        try:
            if list(sys.argv[1:] if args is None else args) in (["--help"], ["-h"]):
                from experiments.commands.train_parser import overview

                overview().print_help()
            else:
                from experiments.training import main

                main(None if args is None else list(args), stopping)
        except (Exception, Stopped) as error:
            from modules.lightning.error_reports import refusal_in

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
            print(f"train.py: {refusal}", file=sys.stderr)
            return 2
    return 0


def command() -> NoReturn:
    """The program that an installation puts on the path."""
    leave(run())


if __name__ == "__main__":
    command()
