"""The small file that says what a dump of plain arrays means: YAML, or JSON, which is YAML as well."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml

from datamodules.foreign_system import Holds
from errors import InputError

FORMAT = 1
_WAY_OUT = "docs/recording-format.md has an example."
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class DumpClient:
    """A client of a round.

    Attributes:
        client: the name under which the server knew it.
        examples: how many examples it says that it has.
        file: its arrays, beside the manifest; None where the round has one file for all.
        truth: what only an evaluation may open, as numbers by name, or a file of arrays.
    """

    client: str
    examples: int
    file: str | None = None
    truth: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DumpRound:
    """A round.

    Attributes:
        round: its number.
        clients: who took part.
        model: file of the global model before the round, None where it is unknown.
        file: arrays ``(C, *shape)`` stacked in the order of `clients`, None where each has a file of its own.
    """

    round: int
    clients: Sequence[DumpClient]
    model: str | None = None
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class DumpManifest:
    """What a dump holds.

    Attributes:
        format: version of this format.
        data: ``name`` of the data set, ``sha256`` where it is known.
        parameters: shapes by name, in the model's order, under the names of the files.
        holds: whether the files hold the clients' ``models`` or their ``deltas``.
        rounds: every round.
        rename: names of the recording by the names of the files, where the learner's network has others.
        learner: the clients' algorithm by name and arguments, None where it is unknown.
        releases: what clients publicly do to their deltas, see `datamodules.foreign_system.System`.
        row_parameters: tables of which a client trains the rows of the items it was served.
        auxiliary: a file of what the server holds beside the updates, e.g. ``images`` and ``labels``.
        system: the system, its version and its settings, as free text by key.
    """

    format: int
    data: Mapping[str, str]
    parameters: Mapping[str, Sequence[int]]
    holds: Holds
    rounds: Sequence[DumpRound]
    rename: Mapping[str, str] = field(default_factory=dict)
    learner: Mapping[str, Any] | None = None
    releases: Sequence[Mapping[str, Any]] = ()
    row_parameters: Sequence[str] = ()
    auxiliary: str | None = None
    system: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses what contradicts itself."""
        _check(self.format == FORMAT, f"a dump of format {FORMAT}", f"format {self.format!r}")
        _check(self.holds in get_args(Holds), f"holds among {', '.join(get_args(Holds))}", repr(self.holds))
        _check(isinstance(self.data, Mapping) and "name" in self.data, "data with a name", repr(self.data))
        _check(bool(self.parameters), "parameters: a shape by name", repr(self.parameters))
        for name, shape in self.parameters.items():
            right = isinstance(shape, list | tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
            _check(right, f"the shape of {name!r} as a list of whole numbers", repr(shape))
        for name in (*self.rename, *self.row_parameters):
            _check(name in self.parameters, f"names among {', '.join(self.parameters)}", repr(name))
        renamed = [self.recorded_name(name) for name in self.parameters]
        _check(len(set(renamed)) == len(renamed), "each name once after renaming", ", ".join(renamed))
        numbers = [one.round for one in self.rounds]
        _check(len(set(numbers)) == len(numbers) and min(numbers, default=-1) >= 0, "rounds, each once", str(numbers))
        for one in self.rounds:
            self._check_files(one)

    def recorded_name(self, name: str) -> str:
        """The name in the recording of a parameter in the files."""
        return self.rename.get(name, name)

    def _check_files(self, one: DumpRound) -> None:
        needs = self.holds == "models" or self.learner is not None
        _check(
            one.model is not None or not needs,
            f"the global model before round {one.round}: its clients' models or a learner mean nothing without it",
            "none",
        )
        for client in one.clients:
            right = (client.file is None) != (one.file is None)
            _check(right, f"a file of round {one.round} or one of each client", f"client {client.client}: {client}")


def read_dump_manifest(path: Path) -> DumpManifest:
    """Reads the manifest of a dump.

    Raises:
        InputError: it is missing, no YAML or JSON, or has an unknown, missing or wrong key.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        rounds = [
            _made(DumpRound, {**one, "clients": [_client(client) for client in one["clients"]]})
            for one in content["rounds"]
        ]
        return _made(DumpManifest, {**content, "rounds": rounds})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            expected="the manifest of a dump", found=f"{_short(error)} in {path}", way_out=_WAY_OUT
        ) from None


def _client(content: Mapping[str, Any]) -> DumpClient:
    made = _made(DumpClient, {**content, "client": str(content["client"])})
    _check(isinstance(made.examples, int), f"the number of examples of client {made.client}", repr(made.examples))
    return made


def _made(kind: type[Made], content: Mapping[str, Any]) -> Made:
    known = [entry.name for entry in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = [str(key) for key in content if key not in known]
    _check(not unknown, f"keys among {', '.join(known)}", repr(next(iter(unknown), "")))
    return kind(**content)


def _short(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())


def _check(right: bool, expected: str, found: str) -> None:
    if not right:
        raise InputError(expected=expected, found=f"{found} in the manifest", way_out=_WAY_OUT)
