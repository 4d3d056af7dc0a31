"""A recording, read lazily: server views for attacks, and apart from them the truth for an evaluation."""

import dataclasses
import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor

from attacks.base import LocalLearner, Release, ServerView
from datamodules.recording_format import (
    AUXILIARY,
    CLIENT,
    JournalLine,
    Manifest,
    dtype_of,
    journals_in,
    read_journal,
    read_manifest,
)
from errors import InputError

_logger = logging.getLogger(__name__)
_SHOWN = {"served": -1, "lists": -1, "features": 0}
"""What a server may have shown, and how it is padded."""
_NUMBERS_PER_VIEW = 2**25
"""Bound on the padded delta numbers of one view: 128 MiB of float32."""


class Recording:
    """What the server of a training saw.

    Args:
        directory: the folder the recorder wrote.
        verify: check each file's hash before it is used.

    Attributes:
        closed: whether its writer came to its end, so that no round is missing; a warning says so where it did not.

    Raises:
        InputError: the folder is no whole recording of this format.
    """

    def __init__(self, directory: str | Path, *, verify: bool = True) -> None:
        self.directory = Path(directory)
        self.verify = verify
        self.manifest: Manifest = read_manifest(self.directory)
        self._lines = self._journalled()
        self._verified: set[str] = set()
        self._auxiliary = self.auxiliary()

    @property
    def rounds(self) -> list[int]:
        """Numbers of the recorded rounds, ascending."""
        return sorted({line.round for line in self._lines.values() if line.file.startswith("rounds/")})

    def pseudonyms(self, round_number: int | None = None) -> list[int]:
        """Every client of a round, or of the recording, ascending."""
        found: set[int] = set()
        for name, line in self._lines.items():
            if name.startswith("rounds/") and round_number in (None, line.round):
                with self._open(name) as shard:
                    found |= set(shard.get_tensor("clients").tolist())
        return sorted(found)

    def views(
        self,
        *,
        victims_per_view: int = 64,
        rounds: Sequence[int] | None = None,
        pseudonyms: set[int] | None = None,
        learner: LocalLearner | None = None,
        history: bool = False,
    ) -> Iterator[ServerView]:
        """Server views of a few victims each, of like size, so that little is padded; memory does not grow with rounds.

        Args:
            victims_per_view: most victims in a view.
            rounds: which rounds, None for all.
            pseudonyms: which victims, None for all.
            learner: the clients' algorithm, where it is known.
            history: fill ``earlier`` from the recorded rounds before, in which all the victims of a view took part;
                memory then grows with rounds.
        """
        wanted = None if rounds is None else set(rounds)
        for name in sorted(name for name in self._lines if name.startswith("rounds/")):
            if wanted is None or self._lines[name].round in wanted:
                for view in self._shard_views(name, victims_per_view, pseudonyms, learner):
                    yield dataclasses.replace(view, earlier=self._earlier(view)) if history else view

    def _earlier(self, view: ServerView) -> tuple[ServerView, ...]:
        """What the server saw of the same victims in the rounds before, in the view's order."""
        found = []
        for name in sorted(name for name, line in self._lines.items() if name.startswith("rounds/")):
            if self._lines[name].round >= view.round:
                continue
            with self._open(name) as shard:
                place = {pseudonym: i for i, pseudonym in enumerate(shard.get_tensor("clients").tolist())}
                if all(pseudonym in place for pseudonym in view.pseudonyms.tolist()):
                    chunk = torch.tensor([place[pseudonym] for pseudonym in view.pseudonyms.tolist()])
                    found.append(self._of_shard(name, shard, chunk, view.learner))
        return tuple(found)

    def _of_shard(self, name: str, shard: Any, chunk: Tensor, learner: LocalLearner | None) -> ServerView:
        """A view of the clients at some positions of a shard."""
        self._check_shapes(name, shard)
        return self._view(name, shard, _model(shard), chunk, _item_offsets(shard), learner)

    def auxiliary(self) -> dict[str, Tensor]:
        """What the server holds beside the clients' updates, e.g. labelled images; empty where nothing is recorded."""
        path = self.directory / AUXILIARY
        expected = self.manifest.auxiliary
        if not path.is_file():
            if expected is not None:
                raise self._damaged(AUXILIARY, "no such file")
            return {}
        content = path.read_bytes()
        if self.verify and expected is not None and hashlib.sha256(content).hexdigest() != expected:
            raise self._damaged(AUXILIARY, "other bytes (its checksum differs)")
        try:
            held: dict[str, Tensor] = load(content)
        except SafetensorError as error:
            raise self._damaged(AUXILIARY, str(error)) from None
        return held

    def model(self, round_number: int) -> dict[str, Tensor]:
        """The global model before a recorded round."""
        lines = self._lines.items()
        name = next(n for n, line in lines if n.startswith("rounds/") and line.round == round_number)
        with self._open(name) as shard:
            return _model(shard)

    def truth(self, view: ServerView) -> dict[str, Tensor]:
        """Opens the truth of a view. Only a place that computes a score may call this.

        Returns:
            ``clients (V,)``; of the served items ``(V, R)`` such as ``labels``, padded with 0; of the clients
            themselves ``(V, ...)``.
        """
        width = 0 if view.served is None else view.served.shape[1]
        of_victim = {
            pseudonym: values
            for name in sorted(name for name in self._lines if name.startswith("truth/"))
            if self._lines[name].round == view.round
            for pseudonym, values in self._truth_of(name, set(view.pseudonyms.tolist()), width).items()
        }
        rows = [of_victim[pseudonym] for pseudonym in view.pseudonyms.tolist()]
        return {field: torch.stack([row[field] for row in rows]) for field in rows[0]}

    def _truth_of(self, name: str, wanted: set[int], width: int) -> dict[int, dict[str, Tensor]]:
        """By pseudonym; items' values are padded to `width`."""
        with self._open(name.replace("truth/", "rounds/")) as shard:
            positions = {p: i for i, p in enumerate(shard.get_tensor("clients").tolist()) if p in wanted}
        with self._open(name) as shard:
            of_clients = {key: shard.get_slice(key) for key in shard.keys() if _of_client(key)}  # noqa: SIM118
            of_items = {key: shard.get_slice(key) for key in shard.keys() if not _of_client(key)}  # noqa: SIM118
            offsets = of_items.pop("offsets")[:] if of_items else torch.zeros(0)
            found = {}
            for pseudonym, i in positions.items():
                values = {key.removeprefix(CLIENT): table[i : i + 1][0] for key, table in of_clients.items()}
                for key, table in of_items.items():
                    own = table[int(offsets[i]) : int(offsets[i + 1])]
                    values[key] = torch.nn.functional.pad(own.float(), (0, width - len(own)))
                found[pseudonym] = values
            return found

    def _journalled(self) -> dict[str, JournalLine]:
        journals = [read_journal(path) for path in journals_in(self.directory)]
        lines = {line.file: line for journal in journals for line in journal.lines}
        if not lines:
            raise InputError(
                expected="a journal of finished rounds",
                found=f"{'an empty one' if journals else 'none'} in {self.directory}",
                way_out="The training ended before its first round was over: run it again.",
            )
        self.closed = len(journals) >= self._ranks() and all(journal.closed for journal in journals)
        if not self.closed:
            _logger.warning(
                "%s is not closed: its training is still running, was interrupted, or its journal is cut short; "
                "%d rounds are read",
                self.directory,
                len({line.round for line in lines.values()}),
            )
        for name, line in lines.items():
            path = self.directory / name
            if not path.is_file() or path.stat().st_size != line.bytes:
                found = f"{path.stat().st_size} bytes" if path.is_file() else "nothing"
                raise InputError(
                    expected=f"{name} of {line.bytes} bytes",
                    found=f"{found} in {self.directory}",
                    way_out="A shard is missing or cut short: copy the recording again, whole.",
                )
        return lines

    def _ranks(self) -> int:
        """How many journals there must be."""
        ranks = self.manifest.config.get("ranks", 1)
        return ranks if type(ranks) is int else 1

    def _open(self, name: str) -> Any:
        path = self.directory / name
        if self.verify and name not in self._verified:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self._lines[name].sha256:
                    raise self._damaged(name, "other bytes (its checksum differs)")
            self._verified.add(name)
        try:
            return safe_open(path, framework="pt")
        except SafetensorError as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, found: str) -> InputError:
        return InputError(
            expected=f"{name} as the journal and the manifest describe it",
            found=found,
            way_out="The recording is damaged or foreign: copy it again, or record again.",
        )

    def _shard_views(
        self, name: str, victims_per_view: int, pseudonyms: set[int] | None, learner: LocalLearner | None
    ) -> Iterator[ServerView]:
        with self._open(name) as shard:
            self._check_shapes(name, shard)
            clients = shard.get_tensor("clients")
            offsets, model = _item_offsets(shard), _model(shard)
            order = torch.argsort(offsets.diff(), stable=True)
            if pseudonyms is not None:
                order = order[[int(clients[i]) in pseudonyms for i in order]]
            for chunk in self._chunks(order, offsets.diff(), victims_per_view):
                yield self._view(name, shard, model, chunk, offsets, learner)

    def _chunks(self, order: Tensor, sizes: Tensor, victims_per_view: int) -> Iterator[Tensor]:
        """Victims in ascending size, as many as fit."""
        dense = sum(
            torch.Size(value["shape"]).numel()
            for name, value in self.manifest.parameters.items()
            if name not in self.manifest.row_parameters
        )
        width = sum(torch.Size(self.manifest.parameters[n]["shape"][1:]).numel() for n in self.manifest.row_parameters)
        chunk: list[int] = []
        for position in order.tolist():
            numbers = (len(chunk) + 1) * (dense + width * int(sizes[position]))
            if chunk and (len(chunk) == victims_per_view or numbers > _NUMBERS_PER_VIEW):
                yield torch.tensor(chunk)
                chunk = []
            chunk.append(position)
        if chunk:
            yield torch.tensor(chunk)

    def _view(
        self,
        name: str,
        shard: Any,
        model: dict[str, Tensor],
        chunk: Tensor,
        offsets: Tensor,
        learner: LocalLearner | None,
    ) -> ServerView:
        deltas = {}
        for parameter in self.manifest.parameters:
            if parameter in self.manifest.row_parameters:
                value = _ragged(shard.get_slice(f"rows/{parameter}"), chunk, offsets, 0)
            else:
                value = _of_clients(shard.get_slice(f"deltas/{parameter}"), chunk)
            if not _finite(value):
                raise self._damaged(name, f"NaN or infinity in the deltas of {parameter!r}")
            deltas[parameter] = value.float()
        shown = {
            kind: _ragged(shard.get_slice(kind), chunk, offsets, padding)
            for kind, padding in _SHOWN.items()
            if kind in set(shard.keys())
        }
        return ServerView(
            round=self._lines[name].round,
            pseudonyms=shard.get_tensor("clients")[chunk],
            example_counts=shard.get_tensor("counts")[chunk],
            deltas=deltas,
            model=model,
            row_parameters=frozenset(self.manifest.row_parameters),
            served=shown.get("served"),
            lists=shown.get("lists"),
            features=shown.get("features"),
            releases=tuple(
                Release(clip=r["clip"], noise_scale=r["noise_scale"], parameters=tuple(r["parameters"]))
                for r in self.manifest.releases
            ),
            learner=learner,
            auxiliary=self._auxiliary,
        )

    def _check_shapes(self, name: str, shard: Any) -> None:
        keys = set(shard.keys())
        needs_items = bool(self.manifest.row_parameters) or bool(keys & set(_SHOWN))
        needed = {"clients", "counts"} | ({"offsets", "served"} if needs_items else set())
        if needed - keys:
            raise self._damaged(name, f"no tensor {sorted(needed - keys)[0]!r}")
        clients = shard.get_slice("clients").get_shape()[0]
        rows = shard.get_slice("served").get_shape()[0] if needs_items else 0
        if needs_items:
            self._check_offsets(name, shard, clients, rows)
        for kind in keys & set(_SHOWN):
            if shard.get_slice(kind).get_shape()[0] != rows:
                raise self._damaged(name, f"{kind!r} of {shard.get_slice(kind).get_shape()[0]} rows, not {rows}")
        for parameter, value in self.manifest.parameters.items():
            ragged = parameter in self.manifest.row_parameters
            key = f"rows/{parameter}" if ragged else f"deltas/{parameter}"
            expected = [rows, *value["shape"][1:]] if ragged else [clients, *value["shape"]]
            if key not in keys:
                raise self._damaged(name, f"no tensor {key!r}")
            if shard.get_slice(key).get_shape() != expected:
                raise self._damaged(name, f"{key!r} of shape {shard.get_slice(key).get_shape()}, not {expected}")
            if shard.get_slice(key)[:0].dtype != dtype_of(value["dtype"]):
                raise self._damaged(name, f"{key!r} of another type than {value['dtype']}")

    def _check_offsets(self, name: str, shard: Any, clients: int, rows: int) -> None:
        offsets = shard.get_tensor("offsets")
        ends = [int(offsets[0]), int(offsets[-1])] if len(offsets) else []
        if len(offsets) != clients + 1 or ends != [0, rows] or bool((offsets.diff() < 0).any()):
            raise self._damaged(name, "offsets that do not fit the clients and rows")


def _model(shard: Any) -> dict[str, Tensor]:
    return {key.removeprefix("model/"): shard.get_tensor(key) for key in list(shard.keys()) if key.startswith("model/")}


def _item_offsets(shard: Any) -> Tensor:
    """Where each client's items begin; all zero where the server served nothing."""
    offsets: Tensor
    if "served" in set(shard.keys()):
        offsets = shard.get_tensor("offsets")
    else:
        offsets = torch.zeros(shard.get_slice("clients").get_shape()[0] + 1)
    return offsets


def _of_client(key: str) -> bool:
    return key == "clients" or key.startswith(CLIENT)


def _of_clients(table: Any, chunk: Tensor) -> Tensor:
    """The given rows; many are faster taken from the whole table, a few without reading the others."""
    if 2 * len(chunk) > table.get_shape()[0]:
        rows: Tensor = table[:][chunk]
        return rows
    return torch.cat([table[i : i + 1] for i in chunk.tolist()])


def _finite(value: Tensor) -> bool:
    """Whether every number is finite; a finite sum says so in one pass, an infinite one may have overflowed."""
    return bool(value.sum().isfinite()) or bool(torch.isfinite(value).all())


def _ragged(table: Any, chunk: Tensor, offsets: Tensor, padding: int) -> Tensor:
    parts = [table[int(offsets[i]) : int(offsets[i + 1])] for i in chunk.tolist()]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding)
