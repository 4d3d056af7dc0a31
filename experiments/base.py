"""What every paper's table has in common as an experiment: cells, each run once."""

import abc
import inspect
import itertools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import pandas as pd
from numpy.typing import ArrayLike
from tqdm import tqdm

from attacks.base import Attack
from attacks.registry import find, of_families
from datamodules.recording_format import only_writer
from evaluation.runner import Evaluation
from evaluation.scores import score_table
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, write_cell
from experiments.options import check_names, in_words
from protocol.errors import InputError

Scale = Literal["small", "paper"]


@dataclass(frozen=True)
class Choice:
    """What the command line asks of an experiment.

    Attributes:
        root: folder of the data sets.
        data: only this data set, None for all.
        scale: ``small`` or ``paper``.
        seeds: number of trainings, from seed 0 on.
        victims: most victims of a recording, None for all.
        progress: show a bar in each cell.
    """

    root: str | None = None
    data: str | None = None
    scale: Scale = "small"
    seeds: int = 1
    victims: int | None = None
    progress: bool = True


class Source(Protocol):
    """A data set: at least, it says what was read."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """Name of the data set and the sha256 of what was read."""


@dataclass(frozen=True, kw_only=True)
class PaperExperiment(abc.ABC):
    """A table.

    Attributes:
        small_cells: whether a cell keeps no more than one core busy, so that several are better run at once.
        families: of the attacks that the table may name by their short names.
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        attacks: what is run, by name, with constructor arguments.
        limits: by slow attack, how many victims of each recording it attacks, drawn at random.
    """

    small_cells: ClassVar[bool] = False
    families: ClassVar[tuple[str, ...]]
    experiment: str
    metrics: list[str]
    data: list[str]
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """From a configuration."""
        return cls(**content)

    @abc.abstractmethod
    def cells(self, choice: Choice) -> "Iterator[PaperCell[Any]]":
        """Every cell to run."""

    @abc.abstractmethod
    def source(self, data: str, root: str | None) -> Source:
        """A data set by its folder name."""

    def names(self, choice: Choice) -> list[str]:
        """The data sets to run: all of the table's, or the one that is asked for.

        Raises:
            InputError: the table cannot be run on that one.
        """
        if choice.data is None:
            return self.data
        check_names("data set", [choice.data], self.known_data)
        return [choice.data]

    @property
    def known_data(self) -> Sequence[str]:
        """Data sets that the table can be run on: its own, and others where it says nothing of each by itself."""
        return self.data

    def grid(self, choice: Choice, cell: "type[PaperCell[Any]]", *axes: Collection[Any]) -> "Iterator[PaperCell[Any]]":
        """Cells of every data set, combination of the axes and seed."""
        for data in self.names(choice):
            yield from self.grid_of(data, choice, cell, *axes)

    def grid_of(
        self, data: str, choice: Choice, cell: "type[PaperCell[Any]]", *axes: Collection[Any]
    ) -> "Iterator[PaperCell[Any]]":
        """Cells of one data set, every combination of the axes and seed."""
        for *column, seed in itertools.product(*axes, range(choice.seeds)):
            yield cell(self, data, choice, seed, *column)

    def attack_class(self, name: str) -> type[Attack]:
        """The class of an attack: by a short name of the table's families, by ``family/name`` or by class path.

        Raises:
            InputError: there is none.
        """
        known = of_families(*self.families)
        if name in known or not {".", "/"} & set(name):
            check_names("attack", [name], list(known))
            return known[name]
        return find(name)

    def takes(self, name: str, argument: str) -> bool:
        """Whether the constructor of an attack takes an argument."""
        return argument in inspect.signature(self.attack_class(name)).parameters

    def make_attacks(
        self, names: Collection[str] | None = None, changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> dict[str, Attack]:
        """The attacks by the table's names, built; of those named, or all.

        Args:
            names: which, None for all.
            changes: by name, arguments in place of the table's.

        Raises:
            InputError: an argument is unknown or impossible.
        """
        chosen = {name: own for name, own in self.attacks.items() if names is None or name in names}
        return {name: self._make(name, {**own, **(changes or {}).get(name, {})}) for name, own in chosen.items()}

    def _make(self, name: str, arguments: Mapping[str, Any]) -> Attack:
        try:
            return self.attack_class(name)(**arguments)
        except (TypeError, ValueError) as error:
            raise InputError(
                expected=f"arguments that {name} takes", found=in_words(error), way_out="Fix `attacks` in the table."
            ) from None


Table = TypeVar("Table", bound=PaperExperiment)


@dataclass(frozen=True)
class PaperCell(abc.ABC, Generic[Table]):
    """One cell of a table: users whose updates are attacked.

    Attributes:
        table: that it belongs to.
        data: folder name of the data set.
        choice: what the command line asks.
        seed: seed of the training.
    """

    table: Table
    data: str
    choice: Choice
    seed: int

    @property
    @abc.abstractmethod
    def key(self) -> str:
        """A folder name that no other cell has."""

    @property
    @abc.abstractmethod
    def setting(self) -> dict[str, Any]:
        """The cell's keys in results.json."""

    def make_attacks(self) -> dict[str, Attack]:
        """The attacks to run on this cell, by the table's names: all of the table's."""
        return self.table.make_attacks()

    def scores(
        self, label: str, metrics: Mapping[str, ArrayLike], *, victims: ArrayLike, **options: Any
    ) -> pd.DataFrame:
        """Rows of this cell's seed and setting; see `score_table` for the options.

        Args:
            label: of the line.
            metrics: by name ``(V,)`` values.
            victims: ``(V,)`` numbers.
            options: further arguments; ``setting`` holds what is added to the cell's.
        """
        setting = {**self.setting, **options.pop("setting", {})}
        return score_table(label, metrics, setting=setting, seed=self.seed, victims=victims, **options)

    def run(self, directory: Path, stamp: Stamp) -> Finished:
        """Trains, records and attacks; a cell that was finished before is read back, if nothing changed since.

        Args:
            directory: the cell's folder.
            stamp: what its numbers depend on.
        """
        done = directory / "cell.json"
        try:
            earlier = read_cell(done, stamp)
        except StaleError as stale:
            tqdm.write(f"{self.key}: run again, because {stale}", file=sys.stderr)
            earlier = None
        if earlier is not None:
            return earlier
        with only_writer(directory):
            finished = Finished(*self.evaluate(directory))
            write_cell(done, stamp, finished)
        return finished

    @abc.abstractmethod
    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """What `run` does where the cell is new."""
