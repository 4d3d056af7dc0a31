"""The program ``fedleak``: ``fedleak COMMAND``; ``fedleak --help`` lists the commands."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from fedleak.commands.shared.all_commands import command_named
from fedleak.commands.shared.command import CommandWithParser
from fedleak.core.closed_output import silent_without_reader
from fedleak.core.errors import InputError, ViewError
from fedleak.core.private_files import private_files
from fedleak.core.signals import Stopped, ends_on_signals, leave


def main(args: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 2 with one message for what a person can fix, 128 + n of signal n."""
    words = sys.argv[1:] if args is None else list(args)
    command = command_named(words[0]) if words else None
    if isinstance(command, CommandWithParser):
        return _run_with_parser(command, words[1:])
    try:
        with ends_on_signals(), silent_without_reader(), private_files():
            return _run(words)
    except (InputError, ViewError) as error:
        print(f"fedleak: {error}", file=sys.stderr)
    except UnicodeDecodeError as error:
        print(f"fedleak: expected a file of UTF-8 text; found {error}. Save it as UTF-8.", file=sys.stderr)
    except OSError as error:
        expected = "expected files and folders that can be read and written, and room for them"
        print(f"fedleak: {expected}; found {error}. What was written before is whole.", file=sys.stderr)
    except Stopped as stopped:
        # What remains of the work: what the command says itself, else what is so for its kind.
        remains = "results are written at the end: none of this run"
        if words[:1] == ["reproduce"]:
            remains = "finished cells are kept for its next run"
        print(f"fedleak: stopped by {stopped}; {stopped.kept or remains}", file=sys.stderr)
        return stopped.status
    return 2


def _run_with_parser(command: CommandWithParser, words: Sequence[str]) -> int:
    """Runs a command that handles signals and errors itself, as a training does in the processes that it starts."""
    try:
        return command.run(words)
    except InputError as error:
        print(f"fedleak: {error}", file=sys.stderr)
        return 2


def _run(words: Sequence[str]) -> int:
    """Prints a help or the versions, or runs a command."""
    # Each is imported when it is asked for: the help and the versions take no time.
    if words[:1] in (["--version"], ["-V"]):
        from fedleak.core.version import versions_text

        print(versions_text())
        return 0
    from fedleak.commands.shared.parser import overview, parsed

    if words[:1] in (["--help"], ["-h"]):
        print(overview())
        return 0
    command, options = parsed(words)
    return command.run(options)


def command() -> NoReturn:
    """The program that an installation puts on the path."""
    leave(main())


if __name__ == "__main__":
    command()
