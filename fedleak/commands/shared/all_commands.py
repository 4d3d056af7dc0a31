"""The commands of ``fedleak``: each file of `fedleak.commands` with a ``COMMAND``, which its name calls."""

import importlib
import pkgutil
from typing import Any

from fedleak import commands
from fedleak.commands.shared.command import Command, CommandWithParser

AnyCommand = Command[Any] | CommandWithParser


def all_commands() -> dict[str, AnyCommand]:
    """Every command by name, in the order of the help."""
    commands_by_name: dict[str, AnyCommand] = {}
    for name in _names_of_files():
        command = _command_in(name)
        if command is not None:
            commands_by_name[name] = command
    return dict(sorted(commands_by_name.items(), key=lambda named: named[1].place))


def command_named(name: str) -> AnyCommand | None:
    """The command of a name, for which no other one is imported; None if there is none."""
    if name not in _names_of_files():
        return None
    return _command_in(name)


def _names_of_files() -> list[str]:
    """Names of the files of the folder; what commands share lies in folders below it."""
    return [module.name for module in pkgutil.iter_modules(commands.__path__) if not module.ispkg]


def _command_in(name: str) -> AnyCommand | None:
    """The command of a file; None for the file of the program, which is none."""
    command: AnyCommand | None = getattr(importlib.import_module(f"{commands.__name__}.{name}"), "COMMAND", None)
    return command
