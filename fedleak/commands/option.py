"""An option of the command line, a command with its groups of options, and the types of their values."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import require

_LOGGERS = ("csv", "mlflow", "tensorboard", "wandb")
_LARGEST_SEED = 2**63 - 1
"""Of torch's generators: a signed integer of 64 bits."""


@dataclass(frozen=True)
class Option:
    """An option or a positional argument of one command.

    Attributes:
        name: as it is typed, e.g. ``--seed``; without dashes for a positional argument.
        help: what it does in this command.
        default: what happens without it, in words; empty for an option that is required.
        required: whether the command does not start without it.
        further: whether it takes options below it, such as ``--learner.NAME VALUE``.
        aliases: other spellings.
        parsing: arguments of `argparse.ArgumentParser.add_argument`.
    """

    name: str
    help: str
    default: str = ""
    required: bool = False
    further: bool = False
    aliases: Sequence[str] = ()
    parsing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.parsing.get("action") == "store_true"

    @property
    def key(self) -> str:
        """Name of the argument of the command's function."""
        return str(self.parsing.get("dest", self.name.removeprefix("--").replace("-", "_")))

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Adds it to a group of a parser; the help ends with the default."""
        said = self.help
        if self.required and self.name.startswith("--"):
            said = f"{self.help} (required)"
        elif self.default:
            said = f"{self.help} (default: {self.default})"
        # argparse formats the text with %.
        group.add_argument(self.name, *self.aliases, help=said.replace("%", "%%"), **self.parsing)


def flag(name: str, help: str) -> Option:
    """An option without a value, off by default."""
    return Option(name, help, default="off", parsing={"action": "store_true"})


@dataclass(frozen=True)
class Command:
    """A command of ``fedleak``.

    Attributes:
        summary: one line of ``fedleak --help``.
        groups: options by the heading of their group, in the order of the help; advanced ones last.
        function: name of its module in `fedleak.commands` and of the function there.
        description: further sentences of its own help.
        loads: what takes seconds before anything else is said; empty for nothing.
    """

    summary: str
    groups: Mapping[str, Sequence[Option]]
    function: str
    description: str = ""
    loads: str = "torch and the attacks"

    @property
    def options(self) -> list[Option]:
        """Options of all groups."""
        return [option for group in self.groups.values() for option in group]


def words(text: str) -> list[str]:
    """Words of a list: ``a,b`` or ``[a, b]``."""
    return text.strip("[]").replace(",", " ").split()


def names(option: str) -> Callable[[str], list[str]]:
    """Type of a list of names that is not empty."""

    def listed(text: str) -> list[str]:
        require(words(text), f"{option} with the names of attacks", repr(text), "`fedleak list --all` has them.")
        return words(text)

    return listed


def seed(text: str) -> int:
    """A seed of the attacks' draws."""
    right = text.isdecimal() and int(text) <= _LARGEST_SEED
    require(right, "--seed from 0 to 2**63 - 1", text, "Set a seed in this range.")
    return int(text)


def at_least_one(option: str) -> Callable[[str], int]:
    """Type of a number of at least 1."""

    def number(text: str) -> int:
        right = text.isdecimal() and int(text) >= 1
        require(right, f"{option} of at least 1", text, "Set at least 1, or omit it.")
        return int(text)

    return number


def rounds(text: str) -> list[int]:
    """Numbers of rounds."""
    return [int(word) for word in words(text)]


def formats(text: str) -> list[str]:
    """Formats of further files."""
    from fedleak.reports.files import Format

    for word in words(text):
        require(word in get_args(Format), f"--format among {', '.join(get_args(Format))}", word, "Write one of them.")
    return words(text)


def value(text: str) -> Any:
    """Value of an option of a class, or of a key of a training, in YAML."""
    try:
        return load_yaml(text)
    except ValueError:
        return text


def override(text: str) -> tuple[str, Any]:
    """Key of a training with its value, from KEY=VALUE."""
    key, given, own = text.partition("=")
    require(given, "--set KEY=VALUE", text or "nothing", "E.g. --set model.local.epochs=5.")
    return key, value(own)


def from_zero(text: str) -> int:
    """Number of a round."""
    require(text.isdecimal(), "--until with the number of a round, from 0", text, "Set a number.")
    return int(text)


def minutes(text: str) -> float:
    """A time above 0."""
    digits = text.replace(".", "", 1)
    require(digits.isdecimal() and float(text) > 0, "--minutes with a number above 0", text, "Set a number, e.g. 5.")
    return float(text)


def loggers(text: str) -> list[str]:
    """Loggers of Lightning."""
    for word in words(text):
        require(word in _LOGGERS, f"--logger among {', '.join(_LOGGERS)}", word, "Write one of them.")
    return words(text)
