"""Parser of ``fedleak``: the requested command's function and its arguments; only that command is imported."""

import argparse
import difflib
import importlib
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedleak.commands.command_table import COMMANDS, HEADINGS, PASSED_ON
from fedleak.commands.old_spellings import check_spelling
from fedleak.commands.option import Command, value
from fedleak.core.errors import InputError, require
from fedleak.core.progress import say_what_starts

_NEAR = 0.75
"""Similarity in [0, 1] above which an option is suggested."""


class _Parser(argparse.ArgumentParser):
    """Parser that takes no abbreviations, leaves defaults to the function that it calls, and raises `InputError`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "argument_default": argparse.SUPPRESS, **options})

    def error(self, message: str) -> NoReturn:
        way_out = f"`{self.prog} --help` lists them."
        raise InputError(expected=f"options that {self.prog} takes", found=message, way_out=way_out)


def parsed(args: Sequence[str]) -> tuple[Callable[..., int], dict[str, Any]]:
    """Function of the requested command and its arguments.

    Raises:
        InputError: an option or its value is wrong, or an attack does not accept its arguments.
        SystemExit: of status 0, after the help.
    """
    name, *words = _command_of(args)
    command = COMMANDS[name]
    check_spelling(name, words)
    below, left = _options_below(words, command)
    given, unknown = command_parser(name).parse_known_args(left)
    arguments = vars(given)
    if unknown:
        raise _unknown(name, unknown)
    if name == "run":
        _add_config(arguments, below)
    _check_required(name, arguments)
    if name == "run":
        _make_objects(arguments, below)
    elif "set" in arguments:
        arguments["set"] = dict(arguments["set"])
    if "gate" in below:
        limits = [f"{key}={limit}" for key, limit in below["gate"].items()]
        arguments["gate"] = [*arguments.get("gate", []), *limits]
    for option in ("learner", "to"):
        if option in below:
            arguments[f"{option}_arguments"] = below[option]
    if command.loads:
        say_what_starts(f"loading {command.loads}")
    module = importlib.import_module(f"{__package__}.{command.function}")
    return getattr(module, command.function), arguments


def overview() -> str:
    """Text of ``fedleak --help``: what there is, by what it is for."""
    width = shutil.get_terminal_size().columns - 2
    summaries = {**{name: command.summary for name, command in COMMANDS.items()}, **PASSED_ON}
    indent = max(map(len, summaries)) + 4
    lines = ["usage: fedleak COMMAND ...", "", "What can be inferred about the clients of federated learning?"]
    for heading, names in HEADINGS.items():
        lines += ["", f"{heading}:"]
        for name in names:
            first = f"  {name}".ljust(indent)
            lines += textwrap.wrap(
                summaries[name], width, initial_indent=first, subsequent_indent=" " * indent, break_on_hyphens=False
            )
    return "\n".join([*lines, "", "fedleak COMMAND --help has the options of a command; fedleak --version."])


def command_parser(name: str) -> argparse.ArgumentParser:
    """Parser of one command, with its options in groups."""
    command = COMMANDS[name]
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    parser = _Parser(
        prog=f"fedleak {name}",
        usage=" ".join([f"fedleak {name}", *_required_words(command), "[options]"]),
        description=f"{summary} {command.description}".strip(),
        add_help=False,
    )
    for heading, options in command.groups.items():
        group = parser.add_argument_group(heading)
        for option in options:
            option.add_to(group)
    parser.add_argument_group("help").add_argument("-h", "--help", action=_Help, help="print this text")
    return parser


def _required_words(command: Command) -> list[str]:
    """What the command does not start without, as a usage has it."""
    required = []
    for option in command.options:
        if option.required:
            value_name = str(option.parsing.get("metavar", option.key.upper()))
            required.append(f"{option.name} {value_name}" if option.name.startswith("--") else value_name)
    return required


class _Help(argparse.Action):
    """Prints the help and ends; that of ``run`` has the names of the attacks, which take a while to find."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        if parser.prog == "fedleak run":
            parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, _names_of_attacks()
        parser.print_help()
        parser.exit()


def _command_of(args: Sequence[str]) -> Sequence[str]:
    """The words, of which the first is the name of a command."""
    names = [*COMMANDS, *PASSED_ON]
    if not args:
        raise InputError(expected="fedleak COMMAND", found="no command", way_out=f"Commands: {', '.join(names)}.")
    if args[0] in COMMANDS:
        return args
    near = difflib.get_close_matches(args[0], names, n=1)
    way_out = f"Did you mean {near[0]}?" if near else "`fedleak --help` lists the commands."
    raise InputError(expected="the name of a command", found=repr(args[0]), way_out=way_out)


def _unknown(name: str, words: Sequence[str]) -> InputError:
    """The error for words that a command does not take; of several, an option says more than a value."""
    word = next((each for each in words if each.startswith("--")), words[0])
    option = word.partition("=")[0]
    near = difflib.get_close_matches(option, [each.name for each in COMMANDS[name].options], n=1, cutoff=_NEAR)
    way_out = f"Did you mean {near[0]}?" if near else f"`fedleak {name} --help` lists them."
    return InputError(expected=f"options that fedleak {name} takes", found=word, way_out=way_out)


def _check_required(name: str, arguments: Mapping[str, Any]) -> None:
    """Checks the options without a default; argparse checks positional arguments, but for those of a file."""
    missing = []
    for option in COMMANDS[name].options:
        if option.required and arguments.get(option.key) is None:
            missing.append(option.name if option.name.startswith("--") else str(option.parsing["metavar"]))
    require(not missing, f"fedleak {name} with {' and '.join(missing)}", "none", f"`fedleak {name} --help`.")


def _names_of_attacks() -> str:
    """The names that ``--attack`` takes, by question."""
    from fedleak.evaluation.attack_descriptions import described

    names: dict[str, list[str]] = {}
    for attack in described():
        names.setdefault(attack.family, []).append(attack.name)
    width = shutil.get_terminal_size().columns - 2
    wraps: dict[str, Any] = {"initial_indent": "  ", "subsequent_indent": "    ", "break_on_hyphens": False}
    lines = [textwrap.fill(f"{family}/ {', '.join(of_family)}", width, **wraps) for family, of_family in names.items()]
    heading = (
        "attacks, by question (name, or question/name where several have it; `fedleak list --all` describes them):"
    )
    return "\n".join([*textwrap.wrap(heading, width), *lines])


def _options_below(words: Sequence[str], command: Command) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Values of options such as ``--attack.NAME VALUE`` by option, nested by the parts of their names; other words."""
    heads = {option.name for option in command.options if option.further}
    found: dict[str, dict[str, Any]] = {}
    others: list[str] = []
    left = iter(words)
    for word in left:
        option, given, text = word.partition("=")
        head, *path = option.split(".")
        if head not in heads or not path:
            others.append(word)
            continue
        inner = found.setdefault(head.removeprefix("--"), {})
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value(text if given else next(left, ""))
    return found, others


def _add_config(arguments: dict[str, Any], below: dict[str, dict[str, Any]]) -> None:
    """Adds what only the configuration file of ``run`` sets; ``attack`` there may be a class path with arguments."""
    from fedleak.tables.table_file import check_keys, read_mapping

    if "config" not in arguments:
        return
    path = Path(arguments.pop("config"))
    config = read_mapping(path, "options of fedleak run in YAML, UTF-8")
    require("deltas" not in config, f"the key recording in {path}", "deltas", "Rename it: recording: DIR.")
    names = [option.key for option in COMMANDS["run"].options]
    check_keys(config, [name for name in names if name != "config"], f"options of fedleak run in {path}")
    attack = config.pop("attack", None)
    name, own = (attack.get("class_path"), attack.get("init_args")) if isinstance(attack, Mapping) else (attack, None)
    if arguments.setdefault("attack", name) == name:
        below["attack"] = {**(own or {}), **below.get("attack", {})}
    arguments.update({**config, **arguments})


def _make_objects(arguments: dict[str, Any], below: Mapping[str, Mapping[str, Any]]) -> None:
    """Makes the attack and the selection of messages of ``run``."""
    from fedleak.core.ranges import typed_arguments
    from fedleak.evaluation.message_selection import MessageSelection
    from fedleak.evaluation.registry import make_attack

    arguments["attack"] = make_attack(arguments["attack"], below.get("attack", {}))
    messages = {**(arguments.get("messages") or {}), **below.get("messages", {})}
    try:
        arguments["messages"] = MessageSelection(**typed_arguments(MessageSelection, messages))
    except (TypeError, ValueError) as error:
        raise InputError(expected="options of --messages", found=str(error), way_out="Correct --messages.") from None
