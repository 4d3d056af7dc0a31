"""What a contest is, and how two results of it are compared."""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

from bench.authors.host import Arrays


@dataclass(frozen=True)
class Comparison:
    """One number that both sides' results have, as a mean over the victims.

    Attributes:
        name: what the number says.
        ours: the number of fedleak's attack.
        theirs: the number of the authors' code.
        tolerance: how far apart the two may be.
    """

    name: str
    ours: float
    theirs: float
    tolerance: float

    @property
    def equal(self) -> bool:
        """Whether the numbers agree; NaN agrees with nothing."""
        return math.isfinite(self.ours) and abs(self.ours - self.theirs) <= self.tolerance

    def __str__(self) -> str:
        sign = "" if self.equal else f", apart by more than {self.tolerance:g}"
        return f"{self.name} {self.ours:.4g} / {self.theirs:.4g}{sign}"


class Contest(abc.ABC):
    """An attack of fedleak and the code of its authors on one set of inputs.

    Each is in a module of `bench.authors.contests`, whose function ``prepare`` is fedleak's side. That of the module
    `theirs`, which imports the authors' functions and calls them, is the other.

    Attributes:
        name: the attack and its setting.
        paper: what the attack was published in.
        authors: name of the environment and the sources of the authors' code.
        theirs: module that calls the authors' code.
        repeats: turns of the race.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    authors: ClassVar[str]
    theirs: ClassVar[str]
    repeats: ClassVar[int] = 5

    @abc.abstractmethod
    def write(self) -> tuple[Arrays, Arrays]:
        """Inputs of both sides, ``victims`` among them, and what only the comparison knows."""

    @abc.abstractmethod
    def compare(self, truth: Arrays, ours: Arrays, theirs: Arrays) -> list[Comparison]:
        """Numbers that must agree for the two results to be called equal."""
