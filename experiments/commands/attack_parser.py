"""Command line of ``attack.py``, which imports only the requested subcommand."""

import ast
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from experiments.commands.one_line_parser import OneLineParser
from experiments.commands.plain_names import plain_names
from protocol.errors import InputError

COMMANDS = {
    "demo": "demo",
    "run": "run",
    "audit": "audit",
    "list": "list_attacks",
    "reproduce": "reproduce",
    "report": "report",
    "convert": "convert",
}
"""Function of each subcommand, in the module of this package with the same name."""


class AttackParser(OneLineParser):
    """Parser of ``attack.py``."""

    program = "attack.py"

    def kinds(self) -> tuple[type, ...]:
        import attacks.registry  # which imports all of them

        return (attacks.Attack,)


def parsed(args: Sequence[str]) -> tuple[Callable[..., int], dict[str, Any]]:
    """Function of the requested subcommand and its arguments.

    Args:
        args: command line arguments.

    Raises:
        InputError: an attack does not accept its arguments.
    """
    parser = attack_parser(next((word for word in args if word in COMMANDS), None))
    chosen = parser.parse_args(plain_names(args))
    name = chosen["command"]
    try:
        arguments = vars(parser.instantiate(chosen)[name])
    except ValueError as error:
        way_out = "`attack.py list` and --help show the arguments."
        raise InputError(expected="valid arguments of the attack", found=str(error), way_out=way_out) from None
    if name == "run":
        del arguments["config"]
    return getattr(_module(name), COMMANDS[name]), arguments


def attack_parser(command: str | None) -> ArgumentParser:
    """Parser of the command line, with the arguments of one subcommand.

    Args:
        command: name of that subcommand, None for none.
    """
    parser = AttackParser(prog=AttackParser.program, description="Attacks on recordings of federated training.")
    subcommands = parser.add_subcommands(dest="command")
    for name in COMMANDS:
        summary = _summary(name)
        own = AttackParser(description=summary)
        if name == command:
            module = _module(name)
            positional = getattr(module, "POSITIONAL", {})
            for argument, options in positional.items():
                own.add_argument(argument, **options)
            if name == "run":
                own.add_argument("--config", action="config")
            own.add_function_arguments(getattr(module, COMMANDS[name]), as_positional=False, skip=set(positional))
        subcommands.add_subcommand(name, own, help=summary)
    return parser


def _module(name: str) -> Any:
    return importlib.import_module(f"{__package__}.{COMMANDS[name]}")


def _summary(name: str) -> str:
    """First line of the docstring of a subcommand's function, without importing its module."""
    source = Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    (documented,) = (ast.get_docstring(node) for node in functions if node.name == COMMANDS[name])
    return (documented or "").partition("\n")[0]
