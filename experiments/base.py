"""What every paper's table has in common as an experiment: cells, each run once."""

import abc
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from tqdm import tqdm

from attacks.base import Attack
from attacks.registry import ATTACKS
from datamodules.recording_format import only_writer
from errors import InputError
from experiments.cell_cache import Finished, StaleError, Stamp, read_cell, write_cell
from experiments.options import check_names, in_words
from modules.list_matching import ListMatching, ManipulatedListMatching
from modules.raifle import Raifle
from reports.evaluation import Evaluation

Scale = Literal["small", "paper"]
RECOMMENDER_ATTACKS: dict[str, type[Attack]] = {**ATTACKS, Raifle.name: Raifle}
RANKING_ATTACKS: dict[str, type[Attack]] = {
    **ATTACKS,
    **{kind.name: kind for kind in (ListMatching, ManipulatedListMatching)},
}
"""RAIFLE is another program on rankings than on recommendations, under one name."""


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


class PaperExperiment(abc.ABC):
    """A table.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        attacks: what is run, by name, with constructor arguments.
        limits: by slow attack, how many victims of each recording it attacks, drawn at random.
        small_cells: whether a cell keeps no more than one core busy, so that several are better run at once.
    """

    small_cells: ClassVar[bool] = False
    experiment: str
    metrics: list[str]
    data: list[str]
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int]

    @property
    @abc.abstractmethod
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """Every attack that the table may name."""

    @abc.abstractmethod
    def cells(self, choice: Choice) -> "Iterator[PaperCell]":
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

    def make_attacks(self, names: Sequence[str] | None = None) -> list[Attack]:
        """The attacks, built; of those named, or all.

        Raises:
            InputError: an argument is unknown or impossible.
        """
        return [
            self._make(name, arguments) for name, arguments in self.attacks.items() if names is None or name in names
        ]

    def _make(self, name: str, arguments: Mapping[str, Any]) -> Attack:
        try:
            return self.known_attacks[name](**arguments)
        except (TypeError, ValueError) as error:
            raise InputError(
                expected=f"arguments that {name} takes", found=in_words(error), way_out="Fix `attacks` in the table."
            ) from None


@dataclass(frozen=True)
class PaperCell(abc.ABC):
    """One cell of a table: users whose updates are attacked.

    Attributes:
        experiment: the table it belongs to.
        data: folder name of the data set.
        choice: what the command line asks.
        seed: seed of the training.
    """

    experiment: PaperExperiment
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

    def make_attacks(self) -> list[Attack]:
        """The attacks to run on this cell: all of the table's."""
        return self.experiment.make_attacks()

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
