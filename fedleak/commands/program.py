"""Attacks on what was recorded: ``python attack.py COMMAND``; ``attack.py --help`` lists the commands."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from fedleak.commands.attack_parser import parsed
from fedleak.core.closed_output import silent_without_reader
from fedleak.core.errors import InputError, ViewError
from fedleak.core.private_files import private_files
from fedleak.core.signals import Stopped, ends_on_signals, leave


def main(args: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 2 with one message for what a person can fix, 128 + n of signal n."""
    given = sys.argv[1:] if args is None else list(args)
    try:
        with ends_on_signals(), silent_without_reader(), private_files():
            command, arguments = parsed(given)
            return command(**arguments)
    except (InputError, ViewError) as error:
        print(f"attack.py: {error}", file=sys.stderr)
    except UnicodeDecodeError as error:
        print(f"attack.py: expected a file of UTF-8 text; found {error}. Save it as UTF-8.", file=sys.stderr)
    except OSError as error:
        wanted = "expected files and folders that can be read and written, and room for them"
        print(f"attack.py: {wanted}; found {error}. What was written before is whole.", file=sys.stderr)
    except Stopped as stopped:
        kept = "results are written at the end: none of this run"
        kept = "finished cells are kept for its next run" if given[:1] == ["reproduce"] else kept
        print(f"attack.py: stopped by {stopped}; {stopped.kept or kept}", file=sys.stderr)
        return stopped.status
    return 2


def command() -> NoReturn:
    """The program that an installation puts on the path."""
    leave(main())


if __name__ == "__main__":
    command()
