"""A command of ``fedleak``, its options in groups, and the values that a person gave them."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar


@dataclass(frozen=True)
class Option:
    """An option or a positional argument of one command.

    Attributes:
        name: as it is typed, e.g. ``--seed``; without dashes for a positional argument.
        help: what it does in this command.
        default: what happens without it, in words; empty for an option that is required.
        required: whether the command does not start without it.
        further: key of the values of options below it, such as ``--learner.NAME VALUE``; empty if it takes none.
        aliases: other spellings.
        parsing: arguments of `argparse.ArgumentParser.add_argument`.
    """

    name: str
    help: str
    default: str = ""
    required: bool = False
    further: str = ""
    aliases: Sequence[str] = ()
    parsing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.parsing.get("action") == "store_true"

    @property
    def is_positional(self) -> bool:
        """Whether its value is given without its name."""
        return not self.name.startswith("--")

    @property
    def key(self) -> str:
        """Name of its value among those of the command."""
        return str(self.parsing.get("dest", self.name.removeprefix("--").replace("-", "_")))

    @property
    def value_name(self) -> str:
        """What a usage has in the place of its value."""
        return str(self.parsing.get("metavar", self.key.upper()))

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Adds it to a group of a parser; the help ends with the default."""
        help_text = self.help
        if self.required and not self.is_positional:
            help_text = f"{self.help} (required)"
        elif self.default:
            help_text = f"{self.help} (default: {self.default})"
        # argparse formats the text with %.
        group.add_argument(self.name, *self.aliases, help=help_text.replace("%", "%%"), **self.parsing)


def flag(name: str, help: str) -> Option:
    """An option without a value, off by default."""
    return Option(name, help, default="off", parsing={"action": "store_true"})


class Options:
    """Base class of the values of a command's options: a frozen dataclass with a field for the key of each option.

    What a person did not give has the field's default. Combinations that exclude each other are refused in
    ``__post_init__``.
    """

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """The options of the values that a person gave, by key.

        Raises:
            InputError: some of them exclude each other.
        """
        return cls(**values)


_Values = TypeVar("_Values", bound=Options)


@dataclass(frozen=True)
class Command(Generic[_Values]):
    """A command of ``fedleak`` whose options are parsed here.

    Attributes:
        heading: heading of ``fedleak --help`` that it stands under.
        place: place among all commands there; a heading stands where its first command does.
        summary: its line there.
        groups: options by the heading of their group, in the order of its own help; advanced ones last.
        options: the dataclass of the options' values.
        run: what it does with them; returns the exit status. Imports that take time stand in it, as the file of a
            command is imported for every help.
        description: further sentences of its own help.
        epilogue: makes what its own help ends with; None for nothing.
        complete: adds values from a file that one of the options names; None for a command without such a file.
        loads: what takes seconds before anything else is said; empty for nothing.
    """

    heading: str
    place: int
    summary: str
    groups: Mapping[str, Sequence[Option]]
    options: type[_Values]
    run: Callable[[_Values], int]
    description: str = ""
    epilogue: Callable[[], str] | None = None
    complete: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    loads: str = "torch and the attacks"

    @property
    def every_option(self) -> list[Option]:
        """Options of all groups."""
        options: list[Option] = []
        for group in self.groups.values():
            options += group
        return options


@dataclass(frozen=True)
class CommandWithParser:
    """A command of ``fedleak`` that parses what follows its name itself.

    Attributes:
        heading: see `Command`.
        place: see `Command`.
        summary: see `Command`.
        run: called with the words after its name; returns the exit status.
    """

    heading: str
    place: int
    summary: str
    run: Callable[[Sequence[str]], int]
