"""The parser of a command: what is wrong with an argument, in one line, with the name that was probably meant."""

import dataclasses
import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from lightning.pytorch.cli import LightningArgumentParser

from protocol.errors import InputError

_NOISE = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes:|Errors:$|Given value( type)?:|"
    r"Expected a <class 'NoneType'>|Expected a path but .* either not accessible or invalid"
)
"""Lines of a message of jsonargparse that say nothing about what is wrong."""
_PLAIN = (
    (re.compile(r'^Parser key "(.*)":$'), r"\1:"),
    (re.compile(r"^Problem with given class_path '(?:.*\.)?(\w+)':$"), r"\1:"),
    (re.compile(r"Expected a dot import path string: (\S+)"), r"no class is called '\1'"),
    (re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>"), r"\1"),
    (re.compile(r"Not of type \w+: (\S+) does not conform to restriction v"), r"found \1; expected a number "),
    (re.compile(r"Not of type \w+: does not conform to restriction v"), "expected a number "),
    (re.compile(r"Expected an? typing\.(\w+\[.*\])"), r"expected \1"),
    (re.compile(r"Expected an? (.*)\. Got value: (.*)"), r"expected \1; found \2"),
)
_MISSPELT = re.compile(
    r"Option '([\w.]+)' is not|[Kk]ey \W?([\w.]+)\W? |unrecognized arguments: --([\w.]+)|called '(\w+)'"
)
_CLASS = re.compile(r"class_path '([\w.]+)'")
_NEAR = 0.75
"""Likeness above which another name is suggested, from 0 to 1."""


class OneLineParser(LightningArgumentParser):
    """Answers a wrong argument by one line and exit status 2, without the list of all options."""

    program: str
    """The command, e.g. ``train.py``; a subcommand's parser has no other way to know it."""
    kinds: tuple[type, ...] = ()
    """Base classes whose subclasses a person may name by their short names."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Ends the command."""
        parser = getattr(ex, "subcommand_parser", None) or self
        command = parser.prog.partition(" ")[2].removeprefix("[options]").strip()
        helped = " ".join(word for word in (self.program, command, "--help") if word)
        line = one_line(message)
        near = likely(line, message, [*parser.option_names(), *class_names(self.kinds)])
        way_out = f"Did you mean {near}?" if near else f"`{helped}` lists what there is."
        sys.stderr.write(f"{self.program}: {line.rstrip('.')}. {way_out}\n")
        self.exit(2)

    def option_names(self) -> list[str]:
        """Names of the options, without their dashes."""
        return [name.removeprefix("--") for action in self._actions for name in action.option_strings]


def one_line(message: str) -> str:
    """A message of jsonargparse without its lists of alternatives and the values that it repeats."""
    lines = [line.strip().removeprefix("- ").strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not _NOISE.match(line)] or [line for line in lines if line]
    plain = [_in_plain_words(line) for line in dict.fromkeys(kept)]
    return " ".join(dict.fromkeys(plain))


def likely(line: str, message: str, names: Sequence[str]) -> str | None:
    """The known name that a misspelt one in a message is most like; None where none is near.

    Args:
        line: the message in one line.
        message: the same as jsonargparse wrote it, in which classes stand with their modules.
        names: options and classes that are known.
    """
    found = _MISSPELT.search(line)
    if found is None:
        return None
    wrong = next(group for group in found.groups() if group)
    known = [*names, *(name for path in _CLASS.findall(message) for name in argument_names(path))]
    for word in (wrong, wrong.rpartition(".")[2]):
        near = difflib.get_close_matches(word, known, n=1, cutoff=_NEAR)
        if near:
            return near[0]
    return None


def argument_names(path: str) -> Iterator[str]:
    """Names of a class's arguments, those of its bases among them, and of the fields of settings among those."""
    module, _, name = path.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return
    for kind in inspect.getmro(made)[:-1]:
        for argument in inspect.signature(kind).parameters.values():
            yield argument.name
            if dataclasses.is_dataclass(argument.annotation):
                yield from (field.name for field in dataclasses.fields(argument.annotation))


def class_names(kinds: Sequence[type]) -> list[str]:
    """Names of all subclasses that have been imported."""
    below: list[type] = []
    for base in kinds:
        below += base.__subclasses__()
    return [kind.__name__ for kind in below] + (class_names(below) if below else [])


def check_config_files(args: Sequence[str]) -> None:
    """Refuses a configuration that no parser would read as it was meant: not text, no mapping, a number for a group.

    Args:
        args: of the command line.

    Raises:
        InputError: with the file's name.
    """
    for place, argument in enumerate(args):
        name, _, value = argument.partition("=")
        if name in ("--config", "-c"):
            given = value or next(iter(args[place + 1 :]), "")
            if Path(given).is_file():
                _check_config_file(Path(given))


def _check_config_file(path: Path) -> None:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, RecursionError, OSError) as error:
        raise InputError(
            expected=f"a configuration in YAML, UTF-8, in {path}", found=str(error), way_out="Write the file again."
        ) from error
    except yaml.YAMLError:
        # The parser says where.
        return
    if not isinstance(content, dict):
        return
    trainer = content.get("trainer", {})
    if not isinstance(trainer, dict):
        raise InputError(
            expected=f"options of the trainer in {path}",
            found=f"trainer: {str(trainer)[:80]}",
            way_out="Write one option a line below `trainer:`, e.g. `max_steps: 5`.",
        )


def _in_plain_words(line: str) -> str:
    for pattern, plain in _PLAIN:
        line = pattern.sub(plain, line)
    return line
