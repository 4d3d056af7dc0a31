"""Answers to spellings of earlier versions: the same command in the present spelling."""

import shlex
from collections.abc import Sequence
from typing import Any

from fedleak.commands.shared.command import Command
from fedleak.core.errors import InputError

_POSITIONAL = {"--deltas": ("audit", "run", "convert"), "--manifest": ("convert",)}
"""Options that are positional arguments now, and the commands that had them."""
_RENAMED = {"--attacks": "--also"}
"""Options that have another name now."""
_TRUE = "true"
"""Value that a flag took for on."""
_FALSE = "false"
"""Value that a flag took for off."""


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
    options: list[str] = []
    flags = {option.name for option in command.every_option if option.is_flag}
    present_names = {option.name for option in command.every_option}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        # A value stands behind an equals sign, or is the next word.
        name, equals_sign, value = word.partition("=")
        if name_of_command in _POSITIONAL.get(name, ()):
            old.append(name)
            if not equals_sign:
                value = waiting.pop(0) if waiting else "DIR"
            positional.append(value)
        elif name in _RENAMED and name not in present_names and _RENAMED[name] in present_names:
            old.append(name)
            options.append(f"{_RENAMED[name]}{equals_sign}{value}")
        elif name in flags and (equals_sign or waiting[:1] in ([_TRUE], [_FALSE])):
            if not equals_sign:
                value = waiting.pop(0)
            old.append(f"{name} {value}")
            if value != _FALSE:
                options.append(name)
        else:
            options.append(word)
    if not old:
        return
    # The copy of a recording has a command of its own.
    if name_of_command == "convert" and "--deltas" in old:
        name_of_command = "publish"
    new = shlex.join(["fedleak", name_of_command, *positional, *options])
    raise InputError(expected="options as they are spelt now", found=" and ".join(old), way_out=f"Type: {new}")
