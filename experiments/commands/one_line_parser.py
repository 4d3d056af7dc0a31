"""Parser with one-line error messages that suggest the nearest known name."""

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
from jsonargparse import ArgumentParser

from protocol.errors import InputError, require

_NOISE = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes:|Errors:$|Given value( type)?:|"
    r"Expected a <class 'NoneType'>|Expected a path but .* either not accessible or invalid"
)
"""Lines of jsonargparse's messages without information on the error."""
_PLAIN = (
    (re.compile(r'^Parser key "(.*)":$'), r"\1:"),
    (re.compile(r"^Problem with given class_path '(?:.*\.)?(\w+)':$"), r"\1:"),
    (re.compile(r"Expected a dot import path string: (\S+)"), r"no class is called '\1'"),
    (re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>"), r"\1"),
    (re.compile(r"Not of type \w+: (\S+) does not conform to restriction v"), r"found \1; expected a number "),
    (re.compile(r"Not of type \w+: does not conform to restriction v"), "expected a number "),
    (re.compile(r"Expected an? typing\.Literal\[(.*?)\]\. Got value: (.*)"), r"expected one of \1; found \2"),
    (re.compile(r"Expected an? (?:typing\.)?(.*)\. Got value: (.*)"), r"expected \1; found \2"),
)
_MISSPELT = re.compile(
    r"Group '(?P<group>[\w.]+)' does not accept option '(?P<inner>[\w.]+)'|"
    r"(?:Option|accept option) '([\w.]+)'|[Kk]ey \W?([\w.]+)\W? |unrecognized arguments: --([\w.]+)|called '(\w+)'"
)
_CHOICE = re.compile(r"expected one of (.*); found (\S+)")
_NO_OPTIONS = ("-h", "help", "print_shtab")
_CLASS = re.compile(r"class_path '([\w.]+)'")
_KNOWN = ". Known: "
_NEAR = 0.75
"""Similarity in [0, 1] above which a name is suggested."""


class OneLineParser(ArgumentParser):
    """Parser that reports a wrong argument in one line with exit status 2, without listing all options."""

    program: str
    """Name of the command, e.g. ``train.py``, which parsers of subcommands need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation that is unique today is another option, or none, tomorrow.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def kinds(self) -> tuple[type, ...]:
        """Base classes of classes that may be given by their short names."""
        return ()

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Ends the command, or raises jsonargparse's own error if `exit_on_error` is False, see `explained`."""
        if not self.exit_on_error:
            super().error(f"{message}{self._known(message)}", ex)
        line, way_out = self.explained(message, getattr(ex, "subcommand_parser", None))
        sys.stderr.write(f"{self.program}: {line}. {way_out}\n")
        self.exit(2)

    def explained(self, message: str, subcommand: "OneLineParser | None" = None) -> tuple[str, str]:
        """Description of an error in one line, and the way out.

        Args:
            message: message of jsonargparse.
            subcommand: parser of the given subcommand, None for none.
        """
        parser = subcommand or self
        command = parser.prog.partition(" ")[2].removeprefix("[options]").strip()
        helped = " ".join(word for word in (self.program, command, "--help") if word)
        line, _, known = one_line(message).partition(_KNOWN)
        near = likely(line, message, [*parser.option_names(), *class_names(self.kinds())])
        if known and not near:
            return line, f"{_KNOWN.removeprefix('. ')}{known}"
        return line.rstrip("."), f"Did you mean {near}?" if near else f"`{helped}` lists the options."

    def _known(self, message: str) -> str:
        """Arguments of a class, for a message about an unknown argument without a similar name."""
        line = one_line(message)
        of_a_class = " " not in self.prog
        # The options of a class are no alternatives to a misspelt class among its arguments.
        misspelt = _MISSPELT.search(line) and "no class is called" not in line
        if not of_a_class or not misspelt or likely(line, message, self.option_names()):
            return ""
        return f"{_KNOWN}{', '.join(self.option_names()) or 'none, as it takes no arguments'}."

    def option_names(self) -> list[str]:
        """Names of the options without dashes."""
        names = [name.removeprefix("--") for action in self._actions for name in action.option_strings]
        return [
            name for name in names if not name.endswith((".help", "+")) and name not in ("-h", "help", "print_shtab")
        ]


def one_line(message: str) -> str:
    """Message of jsonargparse in one line, without lists of alternatives and repeated values."""
    lines = [line.strip().removeprefix("- ").strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not _NOISE.match(line)] or [line for line in lines if line]
    if any("Not of type" in line or "is not accepted" in line for line in kept):
        # The other branch of "an attack or its name".
        kept = [line for line in kept if not line.startswith("Expected a <class 'str'>")]
    plain = [_simplified(line) for line in dict.fromkeys(kept)]
    return " ".join(dict.fromkeys(plain))


def likely(line: str, message: str, names: Sequence[str]) -> str | None:
    """Known name that is most similar to a misspelt name in a message; None without a similar name.

    Args:
        line: message in one line.
        message: original message of jsonargparse, which contains class paths.
        names: known options and classes.
    """
    choice = _CHOICE.search(line)
    if choice is not None:
        return _nearest(choice[2], re.findall(r"[\w./-]+", choice[1]))
    found = _MISSPELT.search(line)
    if found is None:
        return None
    wrong = ".".join(group for group in found.groups() if group)
    known = [*names, *(name for path in _CLASS.findall(message) for name in argument_names(path))]
    below = _by_parts(wrong, known)
    if below is not None:
        return below
    last = _nearest(wrong.rpartition(".")[2], [name.rpartition(".")[2] for name in known])
    return None if last is None else min((n for n in known if n.rpartition(".")[2] == last), key=len)


def _by_parts(wrong: str, known: Sequence[str]) -> str | None:
    """Dotted name with each part replaced by the nearest known part; parts below all known names are kept."""
    right = ""
    for part in wrong.split("."):
        options = {name[len(right) :].partition(".")[0] for name in known if name.startswith(right)}
        near = _nearest(part, sorted(options)) if options else part
        if near is None:
            return None
        right += f"{near}."
    return right[:-1] if right[:-1] != wrong else None


def _nearest(word: str, names: Sequence[str]) -> str | None:
    """Name most similar to a word, or abbreviated by it, e.g. ``lr`` for ``learning_rate``."""
    near = difflib.get_close_matches(word, names, n=1, cutoff=_NEAR)
    short = [name for name in names if len(word) > 1 and "".join(part[:1] for part in name.split("_")) == word]
    return next(iter([*near, *short]), None)


def argument_names(path: str) -> Iterator[str]:
    """Names of a class's arguments, including those of its bases and the fields of dataclass arguments."""
    module, _, name = path.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        return
    for kind in inspect.getmro(made)[:-1]:
        for argument in inspect.signature(kind).parameters.values():
            yield argument.name
            if dataclasses.is_dataclass(argument.annotation):
                yield from (f"{argument.name}.{field.name}" for field in dataclasses.fields(argument.annotation))


def class_names(kinds: Sequence[type]) -> list[str]:
    """Names of all imported subclasses."""
    below: list[type] = []
    for base in kinds:
        below += base.__subclasses__()
    return [kind.__name__ for kind in below] + (class_names(below) if below else [])


def check_config_files(args: Sequence[str]) -> None:
    """Checks that configuration files are text and that `trainer` is a mapping.

    Args:
        args: command line arguments.

    Raises:
        InputError: a file is not UTF-8 text, or its `trainer` is not a mapping.
    """
    for path in config_files(args):
        if path.is_file():
            _check_config_file(path)


def config_files(args: Sequence[str]) -> list[Path]:
    """Configuration files of a command line, in order."""
    found = []
    for place, argument in enumerate(args):
        name, _, value = argument.partition("=")
        if name in ("--config", "-c"):
            found.append(Path(value or next(iter(args[place + 1 :]), "")))
    return found


def _check_config_file(path: Path) -> None:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, RecursionError, OSError) as error:
        raise InputError(
            expected=f"a configuration in YAML, UTF-8, in {path}", found=str(error), way_out="Write the file again."
        ) from error
    except yaml.YAMLError:
        # The parser reports the position.
        return
    if not isinstance(content, dict):
        return
    table = {"train", "metrics"} <= {*content} or "over" in content
    way_out = f"It is a table: python attack.py reproduce {path}."
    require(not table, f"a configuration of a training in {path}", ", ".join(map(str, content)), way_out)
    trainer = content.get("trainer", {})
    require(
        isinstance(trainer, dict),
        f"options of the trainer in {path}",
        f"trainer: {str(trainer)[:80]}",
        "Write one option per line below `trainer:`, e.g. `max_steps: 5`.",
    )


def _simplified(line: str) -> str:
    for pattern, plain in _PLAIN:
        line = pattern.sub(plain, line)
    return line
