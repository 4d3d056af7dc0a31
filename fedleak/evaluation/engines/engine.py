"""An engine: where the independent parts of some work run."""

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from fedleak.core import named
from fedleak.core.errors import require
from fedleak_recorder.nearest import did_you_mean

Part = TypeVar("Part")
Result = TypeVar("Result")

_PARTS = 8
"""Parts of the work for each job, so that none waits long for the last one."""


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """Where the independent parts of some work run: the jobs of an audit, the trainings of a table.

    A part is a function of a module with one argument, both of which another process can unpickle. What a part returns
    does not depend on the engine. A part that takes long writes what it has to files, and starts from these when it is
    run again: an engine may run a part twice.

    A subclass is a frozen data class whose further fields are the options ``--engine.NAME VALUE``. It lies in a file of
    this package that is named after it, or elsewhere, and is then named by its class path.

    Attributes:
        name: what selects it: ``--engine NAME``.
        jobs: number of parts that run at the same time, at most.
        folder: folder for the engine's own files, of this run alone; the engine makes it if it needs one.

    Example:
        >>> from fedleak.evaluation.engines.processes import Processes
        >>> list(Processes(jobs=1).run(abs, [-3, 2]))
        [3, 2]
    """

    name: ClassVar[str]

    jobs: int = 1
    folder: Path = Path("engine")

    @classmethod
    def of(cls, options: "EngineOptions") -> Self:
        """The engine that a command wants.

        Raises:
            InputError: the engine has no option of a name, or not with this value.
        """
        return cls._made(options, jobs=options.jobs_on_one_machine)

    @classmethod
    def _made(cls, options: "EngineOptions", jobs: int) -> Self:
        names = [option.name for option in dataclasses.fields(cls) if option.name not in ("jobs", "folder")]
        options_in_words = f"It has {', '.join(names)}." if names else f"The engine {cls.name} has none."
        for name in options.arguments:
            require(
                name in names,
                f"--engine.NAME with an option of the engine {cls.name}",
                name,
                did_you_mean(name, names, options_in_words),
            )
        arguments = {**options.arguments, "jobs": jobs, "folder": options.folder}
        return named.build(cls, arguments, where=f"the engine {cls.name}", option="--engine.")

    @property
    def parts(self) -> int:
        """Number of parts into which a caller that is free to choose divides its work."""
        return _PARTS * self.jobs

    @property
    def in_this_process(self) -> bool:
        """Whether the calling process does the work itself, part after part, and starts nothing."""
        return False

    @property
    def in_words(self) -> str:
        """How work ran, for a report."""
        return f"{self.name}, {self.jobs} at a time"

    @abstractmethod
    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        """Yields what a function returns for each part of some work, in order.

        Args:
            function: function of a module, which other processes can import.
            work: its arguments.

        Raises:
            InputError: a part raised it, or the engine cannot run the work.
        """


@dataclass(frozen=True)
class EngineOptions:
    """What a command knows of the engine that it wants.

    Attributes:
        folder: folder for the engine's own files, in the folder of the results.
        jobs: number of parts at the same time; None for what the engine takes by itself.
        most_on_one_machine: parts that fit into this machine at the same time; None for one on each core.
        arguments: values of ``--engine.NAME VALUE``.
    """

    folder: Path
    jobs: int | None = None
    most_on_one_machine: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def jobs_on_one_machine(self) -> int:
        """Number of parts at the same time in processes of this machine."""
        return self.jobs or self.most_on_one_machine or cores()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
