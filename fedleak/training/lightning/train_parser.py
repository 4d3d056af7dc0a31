"""What ``fedleak train`` adds to the parser of LightningCLI: errors of one line, checks of files, a fast help."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError, require

SUBCOMMANDS = {
    "fit": "Trains a model on federated clients; callbacks record and audit what the server sees.",
    "validate": "Measures a checkpoint on the data's test examples.",
}
_NO_OPTIONS = ("-h", "help", "print_shtab")
_TAKEN = "options that it takes"
_NEAR = 0.75
"""Similarity in [0, 1] above which a name is suggested."""


def overview() -> ArgumentParser:
    """Parser with the subcommands but not their options, which would import Lightning, for seconds."""
    description = "Federated training: fedleak train fit --config configs/train/fncf_movielens.yaml --data.root DIR"
    parser = ArgumentParser(prog="fedleak train", description=description)
    parser.add_argument("-c", "--config", action="config", help="configuration file, as in configs/train")
    subcommands = parser.add_subcommands(dest="subcommand")
    for name, summary in SUBCOMMANDS.items():
        subcommands.add_subcommand(name, ArgumentParser(description=summary), help=summary)
    return parser


class OneLineParser(ArgumentParser):
    """Parser that reports a wrong argument in one line with exit status 2, without listing all options.

    jsonargparse parses the arguments of a class by another instance of this class, whose error it wraps. The instance
    that meets an unknown name raises an `InputError` with the nearest of its own options; the outermost one prints it.
    """

    program: str
    """Name of the command, e.g. ``fedleak``, which parsers of subcommands need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation that is unique today is another option, or none, tomorrow.
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def kinds(self) -> tuple[type, ...]:
        """Base classes of classes that may be given by their short names."""
        return ()

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Ends the command, or raises jsonargparse's own error if `exit_on_error` is False, see `explained`."""
        parser = getattr(ex, "subcommand_parser", None) or self
        if ex is None or isinstance(ex, KeyError):
            way_out = parser.near(message) or parser.known()
            ex = InputError(expected=_TAKEN, found=message.rstrip("."), way_out=way_out)
        if not self.exit_on_error:
            super().error(message, ex)
        line, way_out = parser.explained(ex)
        sys.stderr.write(f"{self.program}: {line}. {way_out}\n")
        self.exit(2)

    def explained(self, error: BaseException) -> tuple[str, str]:
        """What is wrong in one line, and the way out; errors of the parsers of classes are causes of this parser's."""
        cause = first_cause(error)
        if isinstance(cause, InputError):
            return one_line(error), cause.way_out
        near = _nearest(str(cause).rpartition(" ")[2].strip("'\""), class_names(self.kinds()))
        return one_line(error), f"Did you mean {near}?" if near else self.known()

    def near(self, message: str) -> str:
        """Suggestion for the misspelt option in a message, in quotes or with dashes; empty if none is near."""
        quoted, dashed = message.split("'")[1::2], [word[2:] for word in message.split() if word.startswith("--")]
        names = self.option_names()
        for wrong in (".".join(quoted), *quoted[-1:], *(word.partition("=")[0] for word in dashed[:1])):
            last = _nearest(wrong.rpartition(".")[2], [name.rpartition(".")[2] for name in names])
            found = _by_parts(wrong, names) or next((n for n in names if n.rpartition(".")[2] == last), None)
            if wrong and found:
                return f"Did you mean {found}?"
        return ""

    def known(self) -> str:
        """Where the options are listed; for a class, its arguments."""
        if not self.exit_on_error and " " not in self.prog:  # others are named with their subcommand
            return f"Known: {', '.join(self.option_names()) or 'none, as it takes no arguments'}."
        return f"`{self.prog.replace('[options] ', '')} --help` lists the options."

    def option_names(self) -> list[str]:
        """Names of the options without dashes."""
        names = [name.removeprefix("--") for action in self._actions for name in action.option_strings]
        return [name for name in names if not name.endswith((".help", "+")) and name not in _NO_OPTIONS]


def first_cause(error: BaseException) -> BaseException:
    """The first of an error's causes, or the error itself."""
    while error.__cause__ is not None and not isinstance(error, InputError):
        error = error.__cause__
    return error


def one_line(error: BaseException) -> str:
    """The first cause of a parser's error, behind headings that say to which argument of which class it belongs."""
    headings: list[str] = []
    cause = first_cause(error)
    while error is not cause:
        heading = str(error).partition("\n")[0]
        headings += [heading] if heading.endswith(":") and heading not in headings else []
        assert error.__cause__ is not None
        error = error.__cause__
    message = str(cause)
    if isinstance(cause, InputError):  # the parser's own message is a sentence
        message = cause.found if cause.expected == _TAKEN else f"expected {cause.expected}; found {cause.found}"
    return " ".join([*headings, *message.split()]).rstrip(".")


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


def class_names(kinds: Sequence[type[Any]]) -> list[str]:
    """Names of all imported subclasses."""
    below: list[type[Any]] = []
    for base in kinds:
        below += base.__subclasses__()
    return [kind.__name__ for kind in below] + (class_names(below) if below else [])


def check_config_files(args: Sequence[str]) -> None:
    """Checks that the configuration files of a command line are UTF-8 text and that `trainer` is a mapping."""
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
        content: Any = load_yaml(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(
            expected=f"a configuration in YAML, UTF-8, in {path}", found=str(error), way_out="Write the file again."
        ) from error
    if not isinstance(content, dict):
        return
    table = {"train", "metrics"} <= {*content} or "over" in content
    way_out = f"It is a table: fedleak reproduce {path}."
    require(not table, f"a configuration of a training in {path}", ", ".join(map(str, content)), way_out)
    trainer = content.get("trainer", {})
    found, way_out = f"trainer: {str(trainer)[:80]}", "Write one option per line below `trainer:`, e.g. `max_steps: 5`."
    require(isinstance(trainer, dict), f"options of the trainer in {path}", found, way_out)
