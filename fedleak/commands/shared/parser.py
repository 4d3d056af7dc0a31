"""Parser of ``fedleak``: the requested command and the values of its options; only that command is imported."""

import argparse
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fedleak.commands.shared.all_commands import all_commands, command_named
from fedleak.commands.shared.command import Command, Option
from fedleak.commands.shared.old_spellings import check_spelling
from fedleak.commands.shared.value_types import value
from fedleak.core.errors import InputError, require
from fedleak.core.progress import say_what_starts
from fedleak_recorder.nearest import did_you_mean


class _Parser(argparse.ArgumentParser):
    """Parser that takes no abbreviations, leaves defaults to the command's dataclass, and raises `InputError`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, argument_default=argparse.SUPPRESS, **settings)

    def error(self, message: str) -> NoReturn:
        way_out = f"`{self.prog} --help` lists them."
        raise InputError(expected=f"options that {self.prog} takes", found=message, way_out=way_out)


def parsed(args: Sequence[str]) -> tuple[Command[Any], Any]:
    """The requested command and the values of its options.

    Args:
        args: words of the command line, of a command without a parser of its own.

    Raises:
        InputError: there is no such command, an option or its value is wrong, or options exclude each other.
        SystemExit: of status 0, after the help.
    """
    check_command(args)
    name, *words = args
    command = command_named(name)
    assert isinstance(command, Command)
    check_spelling(name, command, words)
    # Options below others, such as --attack.rounds, are of a class that argparse does not know.
    values_below, other_words = _options_below(words, command)
    namespace, unknown_words = command_parser(name, command).parse_known_args(other_words)
    if unknown_words:
        raise _unknown(name, command, unknown_words)
    values = {**vars(namespace), **values_below}
    if command.complete is not None:
        values = command.complete(values)
    _check_required(name, command, values)
    if command.loads:
        say_what_starts(f"loading {command.loads}")
    return command, command.options.read(values)


def check_command(args: Sequence[str]) -> None:
    """Checks that a command line begins with the name of a command.

    Raises:
        InputError: it does not.
    """
    if args and command_named(args[0]) is not None:
        return
    names = list(all_commands())
    if not args:
        raise InputError(expected="fedleak COMMAND", found="no command", way_out=f"Commands: {', '.join(names)}.")
    way_out = did_you_mean(args[0], names, "`fedleak --help` lists the commands.")
    raise InputError(expected="the name of a command", found=repr(args[0]), way_out=way_out)


def overview() -> str:
    """Text of ``fedleak --help``: what there is, by what it is for."""
    width = shutil.get_terminal_size().columns - 2
    commands = all_commands()
    indent = max(map(len, commands)) + 4
    lines = ["usage: fedleak COMMAND ...", "", "What can be inferred about the clients of federated learning?"]
    for heading in dict.fromkeys(command.heading for command in commands.values()):
        lines += ["", f"{heading}:"]
        for name, command in commands.items():
            if command.heading == heading:
                first = f"  {name}".ljust(indent)
                lines += textwrap.wrap(
                    command.summary,
                    width,
                    initial_indent=first,
                    subsequent_indent=" " * indent,
                    break_on_hyphens=False,
                )
    return "\n".join([*lines, "", "fedleak COMMAND --help has the options of a command; fedleak --version."])


def command_parser(name: str, command: Command[Any]) -> argparse.ArgumentParser:
    """Parser of one command, with its options in groups."""
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    required_words = [_in_usage(option) for option in command.every_option if option.required]
    parser = _Parser(
        prog=f"fedleak {name}",
        usage=" ".join([f"fedleak {name}", *required_words, "[options]"]),
        description=f"{summary} {command.description}".strip(),
        add_help=False,
    )
    for heading, options in command.groups.items():
        group = parser.add_argument_group(heading)
        for option in options:
            option.add_to(group)
    parser.add_argument_group("help").add_argument(
        "-h", "--help", action=_Help, epilogue=command.epilogue, help="print this text"
    )
    return parser


def _in_usage(option: Option) -> str:
    """An option that is required, as a usage has it."""
    if option.is_positional:
        return option.value_name
    return f"{option.name} {option.value_name}"


class _Help(argparse.Action):
    """Prints the help and ends; what it ends with may take a while to find, and is found only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        self.epilogue = settings.pop("epilogue")
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        if self.epilogue is not None:
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
            parser.epilog = self.epilogue()
        parser.print_help()
        parser.exit()


def _unknown(name: str, command: Command[Any], words: Sequence[str]) -> InputError:
    """The error for words that a command does not take; of several, an option says more than a value."""
    unknown = words[0]
    way_out = f"`fedleak {name} --help` lists them."
    options = [word for word in words if word.startswith("--")]
    if options:
        unknown = options[0]
        option_names = [option.name for option in command.every_option if not option.is_positional]
        way_out = did_you_mean(unknown.partition("=")[0], option_names, way_out)
    return InputError(expected=f"options that fedleak {name} takes", found=unknown, way_out=way_out)


def _check_required(name: str, command: Command[Any], values: Mapping[str, Any]) -> None:
    """Checks the options without a default; argparse checks positional arguments, but for those of a file."""
    missing = []
    for option in command.every_option:
        has_value = values.get(option.key) is not None or option.further in values
        if option.required and not has_value:
            missing.append(option.value_name if option.is_positional else option.name)
    require(not missing, f"fedleak {name} with {' and '.join(missing)}", "none", f"`fedleak {name} --help`.")


def _options_below(words: Sequence[str], command: Command[Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Values of options such as ``--attack.NAME VALUE``, nested by the parts of their names; and all other words.

    The values of each option are under its key for them (`Option.further`).

    Raises:
        InputError: a name has both a value and options below it.
    """
    keys = {option.name: option.further for option in command.every_option if option.further}
    values_below: dict[str, dict[str, Any]] = {}
    other_words: list[str] = []
    waiting = iter(words)
    for word in waiting:
        option, equals_sign, text = word.partition("=")
        head, *path = option.split(".")
        if head not in keys or not path:
            other_words.append(word)
            continue
        inner = values_below.setdefault(keys[head], {})
        for part_of_name in path[:-1]:
            inner = inner.setdefault(part_of_name, {})
            way_out = "Give the value, or the options below it."
            require(isinstance(inner, dict), f"{option} without a value of its own before", f"{inner!r}", way_out)
        inner[path[-1]] = value(text if equals_sign else next(waiting, ""))
    return values_below, other_words
