"""Answers to spellings of earlier versions: the same command in the present spelling."""

import shlex
from collections.abc import Sequence
from typing import Any

from fedleak.commands.shared.command import Command
from fedleak.core.errors import InputError

_POSITIONAL = {"--deltas": ("audit", "run", "convert"), "--manifest": ("convert",)}
"""Options that are positional arguments now, and the commands that had them."""
_RENAMED = {"--attacks": "--also"}
_TRUE, _FALSE = "true", "false"
"""Values that flags took."""


def check_spelling(name_of_command: str, command: Command[Any], words: Sequence[str]) -> None:
    """Checks that a command line has none of the spellings of earlier versions.

    Args:
        name_of_command: what calls the command.
        command: the command.
        words: what follows it.

    Raises:
        InputError: there is an old spelling; the way out is the whole command in the present one.
    """
    old: list[str] = []
    positional: list[str] = []
    others: list[str] = []
    flags = {option.name for option in command.every_option if option.is_flag}
    known = {option.name for option in command.every_option}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, given, value = word.partition("=")
        if name_of_command in _POSITIONAL.get(name, ()):
            old.append(name)
            if not given:
                value = waiting.pop(0) if waiting else "DIR"
            positional.append(value)
        elif name in _RENAMED and name not in known and _RENAMED[name] in known:
            old.append(name)
            others.append(f"{_RENAMED[name]}={value}" if given else _RENAMED[name])
        elif name in flags and (given or waiting[:1] in ([_TRUE], [_FALSE])):
            if not given:
                value = waiting.pop(0)
            old.append(f"{name} {value}")
            if value != _FALSE:
                others.append(name)
        else:
            others.append(word)
    if not old:
        return
    # The copy of a recording has a command of its own.
    if name_of_command == "convert" and "--deltas" in old:
        name_of_command = "publish"
    new = shlex.join(["fedleak", name_of_command, *positional, *others])
    raise InputError(expected="options as they are spelt now", found=" and ".join(old), way_out=f"Type: {new}")
