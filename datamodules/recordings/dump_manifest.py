"""The small file that says what a dump of plain arrays means: YAML, or JSON, which is YAML as well."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml

from datamodules.recordings.external_system import Holds
from datamodules.recordings.manifest_fields import is_release, is_shape, is_whole
from datamodules.recordings.plain_files import read_bounded, strange_value
from protocol.errors import InputError

FORMAT = 1
_WAY_OUT = "docs/recording-format.md has an example."
_MOST = 2**48
_LAST = 10**9
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

    def __post_init__(self) -> None:
        """Refuses what is of another kind."""
        where = f"of client {self.client[:100]}"
        _check(is_whole(self.examples, 0, _MOST), f"the number of examples {where}", repr(self.examples))
        _check(self.file is None or type(self.file) is str, f"the name of a file {where}", repr(self.file))
        right = isinstance(self.truth, Mapping | str)
        _check(right, f"truth as numbers by name, or the name of a file, {where}", repr(self.truth))


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

    def __post_init__(self) -> None:
        """Refuses what is of another kind."""
        _check(is_whole(self.round, 0, _LAST), f"a round's number, at most {_LAST}", repr(self.round))
        for name in (self.model, self.file):
            _check(name is None or type(name) is str, f"the name of a file of round {self.round}", repr(name))


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
        releases: what clients publicly do to their deltas, see `datamodules.recordings.external_system.System`.
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
        """Refuses what is of another kind, or contradicts itself."""
        _check(
            type(self.format) is int and self.format == FORMAT, f"a dump of format {FORMAT}", f"format {self.format!r}"
        )
        _check(self.holds in get_args(Holds), f"holds among {', '.join(get_args(Holds))}", repr(self.holds))
        right = _is_texts(self.data) and bool(self.data.get("name"))
        _check(right, "data with a name, as texts by key", repr(self.data))
        _check(isinstance(self.parameters, Mapping) and self.parameters, "parameters: a shape by name", self.parameters)
        for name, shape in self.parameters.items():
            _check(
                bool(name) and is_shape(shape), f"the shape of {name!r} as a list of whole numbers above 0", repr(shape)
            )
        _check(_is_texts(self.rename) and all(self.rename.values()), "rename: names by name", self.rename)
        _check(_is_names(self.row_parameters), "row_parameters: a list of names", self.row_parameters)
        _check(self.auxiliary is None or type(self.auxiliary) is str, "auxiliary: the name of a file", self.auxiliary)
        _check(isinstance(self.system, Mapping), "system: anything by key", self.system)
        _check(self.learner is None or isinstance(self.learner, Mapping), "a learner, or null", self.learner)
        _check_releases(self.releases)
        for name in (*self.rename, *self.row_parameters):
            _check(name in self.parameters, f"names among {', '.join(self.parameters)}", repr(name))
        for name in self.row_parameters:
            _check(len(self.parameters[name]) > 1, f"{name!r} as a table of several rows", self.parameters[name])
        renamed = [self.recorded_name(name) for name in self.parameters]
        _check(len(set(renamed)) == len(renamed), "each name once after renaming", ", ".join(renamed))
        numbers = [one.round for one in self.rounds]
        _check(len(set(numbers)) == len(numbers) and bool(numbers), "rounds, each once", str(numbers))
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
        files = [client.file for client in one.clients if client.file is not None]
        _check(len(set(files)) == len(files), f"a file of its own for each client of round {one.round}", "one twice")
        for client in one.clients:
            right = (client.file is None) != (one.file is None)
            _check(right, f"a file of round {one.round} or one of each client", f"client {client.client}: {client}")


def read_dump_manifest(path: Path) -> DumpManifest:
    """Reads the manifest of a dump.

    Raises:
        InputError: it is missing, no YAML or JSON, or has an unknown, missing or wrong key.
    """
    text = read_bounded(path, way_out=_WAY_OUT)
    try:
        content = yaml.load(text.decode("utf-8"), _Loader)
        problem = strange_value(content)
        if problem is not None:
            raise ValueError(problem)
        rounds = [
            _made(DumpRound, {**one, "clients": [_client(client) for client in one["clients"]]})
            for one in content["rounds"]
        ]
        return _made(DumpManifest, {**content, "rounds": rounds})
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            expected="the manifest of a dump", found=f"{_short(error)} in {path}", way_out=_WAY_OUT
        ) from None


class _Loader(yaml.SafeLoader):
    """Dates stay the texts that they are written as, and no key may stand twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping; the same key twice is an error, not a replacement."""
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        most = max(counts, key=counts.__getitem__, default="")
        if counts[most] > 1:
            raise ValueError(f"the key {most!r} twice in line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def _client(content: Mapping[str, Any]) -> DumpClient:
    name = content["client"]
    _check(type(name) in (str, int) and name != "", "a client's name", repr(name))
    return _made(DumpClient, {**content, "client": str(name)})


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(type(text) is str for text in value.values())


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(name) is str for name in value)


def _check_releases(releases: Any) -> None:
    """A key that is not known would be noise that nobody counts."""
    expected = "releases: a list of clip (above 0), noise_scale (0 or more) and parameters"
    _check(isinstance(releases, list | tuple), expected, releases)
    for release in releases:
        whole: dict[str, Any] = {"clip": None, "noise_scale": 0.0, "parameters": []}
        _check(isinstance(release, Mapping) and is_release({**whole, **release}), expected, release)


def _made(kind: type[Made], content: Mapping[str, Any]) -> Made:
    known = [entry.name for entry in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = [str(key) for key in content if key not in known]
    _check(not unknown, f"keys among {', '.join(known)}", repr(next(iter(unknown), "")))
    return kind(**content)


def _short(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())


def _check(right: object, expected: str, found: object) -> None:
    if not right:
        raise InputError(expected=expected, found=f"{str(found)[:200]} in the manifest", way_out=_WAY_OUT)
