"""Manifest of a dump of plain arrays by another system, in YAML or JSON (which is YAML)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError, require
from fedleak.core.io.files import read_bounded
from fedleak_recorder.manifest_fields import is_names, is_release, is_shape, is_text, is_texts, is_whole
from fedleak_recorder.plain_values import strange_value
from fedleak_recorder.system import Holds

FORMAT = 1
_WAY_OUT = "docs/reference/recording-format.md has an example."
_MOST = 2**48
_LAST = 10**9
Made = TypeVar("Made")


def _check(right: object, expected: str, found: object) -> None:
    require(right, expected, f"{str(found)[:200]} in the manifest", _WAY_OUT)


@dataclass(frozen=True, kw_only=True)
class DumpClient:
    """A client of a round, with a file of its arrays unless the round has one, and its truth by name or as a file.

    If the arrays are a sum, `participants` are the names of all clients in it.
    """

    client: str
    examples: int
    file: str | None = None
    truth: Mapping[str, Any] | str = field(default_factory=dict)
    participants: Sequence[str] = ()

    def __post_init__(self) -> None:
        where = f"of client {self.client[:100]}"
        _check(is_whole(self.examples, 0, _MOST), f"the number of examples {where}", repr(self.examples))
        _check(is_text(self.file), f"the name of a file {where}", repr(self.file))
        right = isinstance(self.truth, Mapping | str)
        _check(right, f"truth as numbers by name, or the name of a file, {where}", repr(self.truth))
        _check(is_names(self.participants), f"participants: a list of names {where}", repr(self.participants))


@dataclass(frozen=True, kw_only=True)
class DumpRound:
    """A round, with a file of the clients' arrays ``(C, *shape)`` stacked in their order, or one in each client."""

    round: int
    clients: Sequence[DumpClient]
    model: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        _check(is_whole(self.round, 0, _LAST), f"a round's number, at most {_LAST}", repr(self.round))
        for name in (self.model, self.file):
            _check(is_text(name), f"the name of a file of round {self.round}", repr(name))
        files = [client.file for client in self.clients if client.file is not None]
        _check(len(set(files)) == len(files), f"a file of its own for each client of round {self.round}", "one twice")
        for client in self.clients:
            right = (client.file is None) != (self.file is None)
            _check(right, f"a file of round {self.round} or one of each client", f"client {client.client}: {client}")


@dataclass(frozen=True, kw_only=True)
class DumpManifest:
    """Content of a dump.

    Attributes:
        format: version of this format.
        data: ``name`` of the data set; ``sha256`` if it is known.
        parameters: shapes by name, in the model's order, under the names in the files.
        holds: whether the files hold the clients' ``models`` or their ``deltas``.
        rounds: all rounds.
        rename: names in the recording by names in the files, if those of the learner's network differ.
        learner: the clients' algorithm by name and arguments; None if it is unknown.
        releases: what clients publicly do to their deltas, see `fedleak_recorder.system.System`.
        row_parameters: tables of which a client trains the rows of its served items only.
        auxiliary: file of the server's auxiliary data, e.g. ``images`` and ``labels``.
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
        _check(is_whole(self.format, FORMAT, FORMAT), f"a dump of format {FORMAT}", f"format {self.format!r}")
        _check(self.holds in get_args(Holds), f"holds among {', '.join(get_args(Holds))}", repr(self.holds))
        right = is_texts(self.data) and bool(self.data.get("name"))
        _check(right, "data with a name, as texts by key", repr(self.data))
        _check(isinstance(self.parameters, Mapping) and self.parameters, "parameters: a shape by name", self.parameters)
        for name, shape in self.parameters.items():
            _check(name and is_shape(shape), f"the shape of {name!r} as a list of whole numbers above 0", repr(shape))
        _check(is_texts(self.rename) and all(self.rename.values()), "rename: names by name", self.rename)
        _check(is_names(self.row_parameters), "row_parameters: a list of names", self.row_parameters)
        _check(is_text(self.auxiliary), "auxiliary: the name of a file", self.auxiliary)
        _check(isinstance(self.system, Mapping), "system: anything by key", self.system)
        _check(self.learner is None or isinstance(self.learner, Mapping), "a learner, or null", self.learner)
        # An unknown key of a release could be noise that nothing takes into account.
        expected = "releases: a list of clip (above 0), noise_scale (0 or more) and parameters"
        _check(isinstance(self.releases, list | tuple), expected, self.releases)
        for release in self.releases:
            whole: dict[str, Any] = {"clip": None, "noise_scale": 0.0, "parameters": []}
            _check(isinstance(release, Mapping) and is_release({**whole, **release}), expected, release)
        for name in (*self.rename, *self.row_parameters):
            _check(name in self.parameters, f"names among {', '.join(self.parameters)}", repr(name))
        for name in self.row_parameters:
            _check(len(self.parameters[name]) > 1, f"{name!r} as a table of several rows", self.parameters[name])
        renamed = [self.recorded_name(name) for name in self.parameters]
        _check(len(set(renamed)) == len(renamed), "each name once after renaming", ", ".join(renamed))
        numbers = [one.round for one in self.rounds]
        _check(len(set(numbers)) == len(numbers) and bool(numbers), "rounds, each once", str(numbers))
        needs = self.holds == "models" or self.learner is not None
        for one in self.rounds:
            expected = f"the global model before round {one.round}: models of clients or a learner need it"
            _check(one.model is not None or not needs, expected, "none")

    def recorded_name(self, name: str) -> str:
        """The name in the recording of a parameter in the files."""
        return self.rename.get(name, name)


def read_dump_manifest(path: Path) -> DumpManifest:
    """Reads the manifest of a dump.

    Raises:
        InputError: it is missing, no YAML or JSON, or has an unknown, missing or wrong key.
    """
    text = read_bounded(path, way_out=_WAY_OUT)
    try:
        content = load_yaml(text.decode("utf-8"), plain=True)
        problem = strange_value(content)
        if problem is not None:
            raise ValueError(problem)
        rounds = [
            _made(DumpRound, {**one, "clients": [_client(client) for client in one["clients"]]})
            for one in content["rounds"]
        ]
        return _made(DumpManifest, {**content, "rounds": rounds})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise InputError(expected="the manifest of a dump", found=f"{reason} in {path}", way_out=_WAY_OUT) from None


def _client(content: Mapping[str, Any]) -> DumpClient:
    name = content["client"]
    _check(type(name) in (str, int) and name != "", "a client's name", repr(name))
    return _made(DumpClient, {**content, "client": str(name)})


def _made(kind: type[Made], content: Mapping[str, Any]) -> Made:
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    known = [entry.name for entry in fields]
    unknown = [str(key) for key in content if key not in known]
    _check(not unknown, f"keys among {', '.join(known)}", repr(next(iter(unknown), "")))
    needed = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
    missing = [name for name in needed if name not in content]
    _check(not missing, f"the keys {', '.join(needed)}", f"no {', '.join(missing)}")
    return kind(**content)
