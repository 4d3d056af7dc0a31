"""Manifest of a dump of plain arrays by another system, in YAML or JSON (which is YAML)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak.core.bounded_yaml import load_yaml
from fedleak.core.errors import InputError
from fedleak.core.io.files import read_bounded
from fedleak_recorder.manifest_fields import ReleaseFields, check_shape
from fedleak_recorder.plain_fields import NAME, FieldError, option, read_fields
from fedleak_recorder.plain_values import strange_value
from fedleak_recorder.system import Holds

FORMAT = 1
_WAY_OUT = "docs/reference/recording-format.md has an example."
# Far above any training, and so small that products and sums of them fit 64 bits.
_MOST_EXAMPLES = 2**48
_LAST_ROUND = 10**9
_LARGEST_SIZE = 2**40


@dataclass(frozen=True, kw_only=True)
class DumpClient:
    """A client of a round, with a file of its arrays unless the round has one, and its truth by name or as a file.

    If the arrays are a sum, `participants` are the names of all clients in it.
    """

    client: str = option(pattern=NAME)
    examples: int = option(low=0, high=_MOST_EXAMPLES)
    file: str | None = option(default=None)
    truth: Mapping[str, Any] | str = option(default_factory=dict)
    participants: tuple[str, ...] = option(default=(), pattern=NAME)


@dataclass(frozen=True, kw_only=True)
class DumpRound:
    """A round, with a file of the clients' arrays ``(C, *shape)`` stacked in their order, or one in each client."""

    round: int = option(low=0, high=_LAST_ROUND)
    clients: tuple[DumpClient, ...] = option()
    model: str | None = option(default=None)
    file: str | None = option(default=None)

    def __post_init__(self) -> None:
        files = [client.file for client in self.clients if client.file is not None]
        if len(set(files)) < len(files):
            raise FieldError("clients", f"a file of its own for each client of round {self.round}")
        # The arrays of each client stand in one place: in its own file, or stacked in the round's.
        for client in self.clients:
            if (client.file is None) == (self.file is None):
                raise FieldError("clients", f"either a file of round {self.round} or one of each client")


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

    format: int = option(low=FORMAT, high=FORMAT)
    data: Mapping[str, str] = option()
    parameters: Mapping[str, tuple[int, ...]] = option(low=1, high=_LARGEST_SIZE)
    holds: Holds = option()
    rounds: tuple[DumpRound, ...] = option()
    rename: Mapping[str, str] = option(default_factory=dict, pattern=NAME)
    learner: Mapping[str, Any] | None = option(default=None)
    releases: tuple[Mapping[str, Any], ...] = option(default=())
    row_parameters: tuple[str, ...] = option(default=(), pattern=NAME)
    auxiliary: str | None = option(default=None)
    system: Mapping[str, Any] = option(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.data.get("name"):
            raise FieldError("data", "texts by key, and a name,")
        if not self.parameters or "" in self.parameters:
            raise FieldError("parameters", "a shape by name")
        for shape in self.parameters.values():
            check_shape(shape, "parameters")
        self._check_names()
        self._check_rounds()

    def _check_names(self) -> None:
        names_of_parameters = {"rename": tuple(self.rename), "row_parameters": self.row_parameters}
        for key, names in names_of_parameters.items():
            if not set(names) <= self.parameters.keys():
                raise FieldError(key, f"names among {', '.join(self.parameters)}")
        for name in self.row_parameters:
            if len(self.parameters[name]) < 2:
                raise FieldError("row_parameters", "names of tables of several rows")
        # Two parameters under one name in the recording would be one.
        renamed = [self.recorded_name(name) for name in self.parameters]
        if len(set(renamed)) < len(renamed):
            raise FieldError("rename", f"names that stand once in {', '.join(renamed)}")

    def _check_rounds(self) -> None:
        numbers = [dump_round.round for dump_round in self.rounds]
        if not numbers or len(set(numbers)) < len(numbers):
            raise FieldError("rounds", "rounds, each once,")
        needs_model = self.holds == "models" or self.learner is not None
        for dump_round in self.rounds:
            if needs_model and dump_round.model is None:
                number = dump_round.round
                expected = f"the global model before round {number}, which models of clients or a learner need,"
                raise FieldError("rounds", expected)

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
    except ValueError as error:
        problem = " ".join(str(error).split())
    if problem is not None:
        raise InputError(expected="the manifest of a dump", found=f"{problem} in {path}", way_out=_WAY_OUT)
    manifest = read_fields(
        DumpManifest, _with_texts_as_names(content), "the manifest", way_out=_WAY_OUT, file=str(path)
    )
    # An unknown key of a release could be noise that nothing takes into account.
    for number, release in enumerate(manifest.releases):
        complete = {"clip": None, "noise_scale": 0.0, "parameters": [], **release}
        read_fields(ReleaseFields, complete, f"the manifest.releases[{number}]", way_out=_WAY_OUT, file=str(path))
    return manifest


def _with_texts_as_names(content: Any) -> Any:
    """The content with names of clients as texts, where they are numbers."""
    if not isinstance(content, Mapping) or not isinstance(content.get("rounds"), list):
        return content
    rounds = []
    for dump_round in content["rounds"]:
        # What is no mapping, or has no clients, is refused later, where fields are read.
        if isinstance(dump_round, Mapping) and isinstance(dump_round.get("clients"), list):
            clients = [_with_text_as_name(client) for client in dump_round["clients"]]
            dump_round = {**dump_round, "clients": clients}
        rounds.append(dump_round)
    return {**content, "rounds": rounds}


def _with_text_as_name(client: Any) -> Any:
    if isinstance(client, Mapping) and type(client.get("client")) is int:
        return {**client, "client": str(client["client"])}
    return client
