"""Writes what the server of another system saw, round by round, from plain arrays: the core of every adapter.

Nothing here knows a framework: `callbacks.flower_recorder` and `datamodules.dump` bring the arrays.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from datamodules.parameter_check import Shapes, check_arrays
from datamodules.recording_format import (
    AUXILIARY,
    CLIENT,
    JOURNALS,
    MANIFEST,
    Manifest,
    append_journal,
    shard_bytes,
    shard_name,
    write_manifest,
    write_shard,
    write_whole,
)
from errors import InputError

Holds = Literal["models", "deltas"]
_PACKAGES = ("torch", "numpy", "safetensors")
_ITEM_TRUTH = "labels"
"""What is true of the served items; all other truth is of the clients themselves."""


@dataclass(frozen=True, kw_only=True)
class System:
    """What holds for the whole training, and is public there.

    Attributes:
        parameters: shapes of the model's parameters by name, in the model's order.
        data: name of the data set; ``sha256`` where it is known.
        holds: whether clients send their trained ``models`` or the ``deltas``.
        learner: the clients' algorithm for `modules.registry`, None where it is unknown.
        releases: what clients publicly do to their deltas: ``clip``, ``noise_scale`` and ``parameters`` (all if empty).
        row_parameters: tables of which only the rows of the served items are kept.
        auxiliary: what the server holds beside the updates, e.g. ``images (M, ch, h, w)`` and ``labels (M,)``.
        origin: the system, its version and its settings, as free text by key.
        versions: versions of the system's packages.
    """

    parameters: Shapes
    data: Mapping[str, str]
    holds: Holds = "models"
    learner: Mapping[str, Any] | None = None
    releases: Sequence[Mapping[str, Any]] = ()
    row_parameters: Sequence[str] = ()
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What one client sent in a round.

    Attributes:
        client: the name under which the server knew it.
        examples: how many examples it says that it has.
        arrays: its model or its delta, in the model's order.
        served: ``(R,)`` items the server showed it, None where it shows nothing.
        truth: what only an evaluation may open: ``labels (R,)`` of the served items, or of the client itself, such as
            ``class_counts (K,)``.
        where: a file or a message, for errors.
    """

    client: str
    examples: int
    arrays: Mapping[str, Tensor]
    served: Tensor | None = None
    truth: Mapping[str, Tensor] = field(default_factory=dict)
    where: str = ""


class RecordingWriter:
    """A recording that grows by one round at a time; memory holds one round.

    Args:
        directory: where to.
        system: what holds for all rounds.

    Raises:
        InputError: the folder holds a recording, or the description contradicts itself.
    """

    def __init__(self, directory: str | Path, system: System) -> None:
        self.directory = Path(directory)
        self.system = system
        if (self.directory / MANIFEST).exists():
            raise InputError(
                expected="a folder without a recording",
                found=f"one in {self.directory}",
                way_out="Give another folder, or delete that one.",
            )
        for journal in self.directory.glob(JOURNALS):
            journal.unlink()  # of a recording that was never declared
        self._auxiliary = shard_bytes(system.auxiliary) if system.auxiliary else None
        self._manifest = _manifest(system, self._auxiliary)

    def declare(self) -> None:
        """Makes the folder a recording; before the first round to keep what a crash leaves, or after the last."""
        if self._auxiliary is not None:
            write_whole(self.directory / AUXILIARY, self._auxiliary)
        write_manifest(self.directory, self._manifest)

    def write(self, number: int, model: Mapping[str, Tensor], sent: Iterable[Sent], clients: int) -> None:
        """Writes a round.

        Args:
            number: the round's own number in that system.
            model: the global model before the round, in the model's order; empty where it is unknown.
            sent: what the clients sent, read one after the other.
            clients: most clients that there are.

        Raises:
            InputError: something is of another model, no number, or there twice.
        """
        if model or self.system.holds == "models":
            check_arrays(self.system.parameters, model, where=f"the global model before round {number}")
        if not clients:
            return
        gathered = _Round(self.system, number, model, clients)
        for one in sent:
            gathered.add(one)
        seen, truth = gathered.shards()
        seen |= {f"model/{name}": value.float() for name, value in model.items()}
        lines = [
            write_shard(self.directory, shard_name(kind, number, 0), shard_bytes(tensors))
            for kind, tensors in (("truth", truth), ("rounds", seen))
        ]
        append_journal(self.directory, 0, lines)


class _Round:
    """The clients of a round, gathered into the tensors of a shard."""

    def __init__(self, system: System, number: int, model: Mapping[str, Tensor], clients: int) -> None:
        self.system, self.number, self.model = system, number, model
        self.names: dict[int, str] = {}
        self.counts: list[int] = []
        self.served: list[Tensor] = []
        self.truths: list[Mapping[str, Tensor]] = []
        self.rows: dict[str, list[Tensor]] = {name: [] for name in system.row_parameters}
        self.dense = {
            name: torch.empty(clients, *shape)
            for name, shape in system.parameters.items()
            if name not in system.row_parameters
        }

    def add(self, one: Sent) -> None:
        where = one.where or f"what client {one.client} sent in round {self.number}"
        name = pseudonym(one.client)
        if name in self.names:
            raise InputError(
                expected=f"each client once in round {self.number}",
                found=f"{one.client} again in {where}",
                way_out="Join its updates, or give the second one to another round.",
            )
        check_arrays(self._expected(one), one.arrays, where=where)
        self._check_counts(one, where)
        place = len(self.names)
        for parameter, value in one.arrays.items():
            if parameter in self.rows:
                self.rows[parameter].append(self._rows(parameter, value, one.served))
            else:
                self.dense[parameter][place] = self._delta(value, self.model.get(parameter))
        self.names[name] = one.client
        self.counts.append(one.examples)
        self.truths.append(one.truth)
        if one.served is not None:
            self.served.append(one.served)

    def _expected(self, one: Sent) -> dict[str, tuple[int, ...]]:
        """Tables come whole, or as the rows of the served items."""
        shapes = {name: tuple(shape) for name, shape in self.system.parameters.items()}
        for name in self.rows:
            if one.served is not None and len(one.arrays.get(name, ())) == len(one.served) != shapes[name][0]:
                shapes[name] = (len(one.served), *shapes[name][1:])
        return shapes

    def _rows(self, parameter: str, value: Tensor, served: Tensor | None) -> Tensor:
        assert served is not None
        whole = len(value) == self.system.parameters[parameter][0]
        before = self.model.get(parameter)
        return self._delta(value[served] if whole else value, None if before is None else before[served])

    def _delta(self, value: Tensor, before: Tensor | None) -> Tensor:
        """In double precision: the difference of two models is small beside them."""
        if self.system.holds == "deltas":
            return value.float()
        assert before is not None
        return (value.double() - before.double()).float()

    def _check_counts(self, one: Sent, where: str) -> None:
        if one.examples < 0:
            raise InputError(
                expected="a number of examples", found=f"{one.examples} in {where}", way_out="Give 0 if it is unknown."
            )
        needs = bool(self.rows) or bool(self.served)
        if (one.served is None and needs) or (one.served is not None and len(self.served) != len(self.names)):
            raise InputError(
                expected="the served items of every client, or of none",
                found=f"others in {where}",
                way_out="Give an array 'served' with the numbers of the items to each client.",
            )
        if one.served is not None and self.rows:
            items = min(int(self.system.parameters[name][0]) for name in self.rows)
            if one.served.numel() and not 0 <= int(one.served.min()) <= int(one.served.max()) < items:
                raise InputError(
                    expected=f"served items from 0 to {items - 1}", found=f"others in {where}", way_out="Mend them."
                )
        if self.truths and one.truth.keys() != self.truths[0].keys():
            raise InputError(
                expected=f"the truth {sorted(self.truths[0])} of every client in round {self.number}",
                found=f"{sorted(one.truth)} in {where}",
                way_out="Give the same of every client, or of none.",
            )

    def shards(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What the server saw, and the truth."""
        clients = torch.tensor(list(self.names))
        seen = {"clients": clients, "counts": torch.tensor(self.counts)}
        truth: dict[str, Tensor] = {"clients": clients}
        seen |= {f"deltas/{name}": value[: len(clients)] for name, value in self.dense.items()}
        if self.served:
            sizes = torch.tensor([0, *(len(items) for items in self.served)])
            seen |= {"offsets": sizes.cumsum(0), "served": torch.cat(self.served)}
            seen |= {f"rows/{name}": torch.cat(values) for name, values in self.rows.items()}
        for name in self.truths[0] if self.truths else ():
            values = [one[name] for one in self.truths]
            if self.served and name == _ITEM_TRUTH:
                truth |= {"offsets": seen["offsets"], name: torch.cat(values)}
            else:
                truth[f"{CLIENT}{name}"] = self._stacked(name, values)
        return seen, truth

    def _stacked(self, name: str, values: Sequence[Tensor]) -> Tensor:
        if len({value.shape for value in values}) > 1:
            raise InputError(
                expected=f"the truth {name!r} of one shape in round {self.number}",
                found=", ".join(sorted({str(tuple(value.shape)) for value in values})),
                way_out="Give as many numbers of every client.",
            )
        return torch.stack(list(values))


def pseudonym(client: str) -> int:
    """The same in every round; a hash, so that a recording which is passed on names nobody in plain text."""
    return int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "big") >> 2


def _manifest(system: System, auxiliary: bytes | None) -> Manifest:
    unknown = [name for name in system.row_parameters if name not in system.parameters]
    releases = [_release(release, list(system.parameters)) for release in system.releases]
    unknown += [name for release in releases for name in release["parameters"] if name not in system.parameters]
    if unknown:
        raise InputError(
            expected=f"parameters among {', '.join(system.parameters)}", found=unknown[0], way_out="Mend that name."
        )
    return Manifest(
        parameters={n: {"shape": list(shape), "dtype": "float32"} for n, shape in system.parameters.items()},
        row_parameters=list(system.row_parameters),
        learner=None if system.learner is None else dict(system.learner),
        releases=releases,
        seed=None,
        data={"name": system.data["name"], "sha256": system.data.get("sha256", "")},
        config=dict(system.origin),
        versions={name: version(name) for name in _PACKAGES} | dict(system.versions),
        commit=None,
        auxiliary=None if auxiliary is None else hashlib.sha256(auxiliary).hexdigest(),
    )


def _release(given: Mapping[str, Any], everything: list[str]) -> dict[str, Any]:
    try:
        clip, scale = given.get("clip"), float(given.get("noise_scale", 0.0))
        return {
            "clip": None if clip is None else float(clip),
            "noise_scale": scale,
            "parameters": list(given.get("parameters") or everything),
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            expected="releases with clip, noise_scale and parameters", found=str(error), way_out="Mend that release."
        ) from None
