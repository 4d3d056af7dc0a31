"""Shards of a recording: opened only if their bytes have the journal's hash, and cut into server views."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.errors import InputError
from fedleak.core.view import POPULARITY, Release, RoundView, features_of
from fedleak_recorder.format import CLIENT_MODEL, ITEM_FEATURES, MODEL, POPULARITY_OF_OTHERS, PRIOR, Manifest
from fedleak_recorder.journal import JournalLine
from fedleak_recorder.shard_check import MESSAGES, PARTICIPANTS, SHOWN

_NUMBERS_PER_VIEW = 2**25
"""Upper bound of the padded delta numbers of one view: 128 MiB of float32."""


class ShardFiles:
    """Shards of one kind, ``rounds`` or ``truth``."""

    def __init__(self, directory: Path, lines: Mapping[str, JournalLine], kind: str, *, verify: bool) -> None:
        self._directory = directory
        self._verify = verify
        self._lines = {name: line for name, line in sorted(lines.items()) if name.startswith(f"{kind}/")}
        self._verified: set[str] = set()
        self._by_round: dict[int, list[str]] = {}
        for name, line in self._lines.items():
            self._by_round.setdefault(line.round, []).append(name)

    @property
    def rounds(self) -> list[int]:
        """Ascending numbers of the rounds."""
        return sorted(self._by_round)

    def names(self, round_number: int) -> list[str]:
        """Shards of a round in the order of the ranks."""
        return self._by_round.get(round_number, [])

    def round_of(self, name: str) -> int:
        """The round of a shard."""
        return self._lines[name].round

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def open(self, name: str) -> Any:
        """Opens a shard; its tensors are read on access.

        Raises:
            InputError: its hash differs from the journal's, or it is no safetensors file.
        """
        path = self._directory / name
        try:
            if self._verify and name not in self._verified:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != self._lines[name].sha256:
                        raise damaged(name, "other bytes (its checksum differs)")
                self._verified.add(name)
            return safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise damaged(name, str(error)) from None

    def model_reader(self, dtype: torch.dtype) -> Callable[[int], dict[str, Tensor]]:
        """Function that reads the global model before a round, and nothing else."""

        def read(round_number: int) -> dict[str, Tensor]:
            with self.open(self.names(round_number)[0]) as shard:
                return model_of(shard, dtype)

        return read


def view_dtype(manifest: Manifest) -> torch.dtype:
    """Type of the models and deltas of server views: float64 if all deltas are recorded so, else float32."""
    return torch.float64 if manifest.double else torch.float32


def model_of(shard: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Global model in an opened shard of ``rounds/``, by parameter; for the type see `view_dtype`."""
    names = [key for key in shard.keys() if key.startswith(MODEL)]  # noqa: SIM118 - no mapping
    return {key.removeprefix(MODEL): shard.get_tensor(key).to(dtype) for key in names}


def damaged(name: str, found: str) -> InputError:
    """Error for a file of a recording that contradicts the rest."""
    return InputError(
        expected=f"{name} as the journal and the manifest describe it",
        found=found,
        way_out="The recording is damaged or foreign: copy it again, or record again.",
    )


class ShardView:
    """An opened shard of ``rounds/`` as the source of views."""

    def __init__(
        self,
        shard: Any,
        name: str,
        *,
        round_number: int,
        manifest: Manifest,
        model: dict[str, Tensor],
        auxiliary: dict[str, Tensor],
    ) -> None:
        self.shard, self.name, self.round = shard, name, round_number
        self.manifest, self.model, self.auxiliary = manifest, model, auxiliary
        self.keys = set(shard.keys())
        self.clients: Tensor = shard.get_tensor("clients").long()
        # All zero if the server served nothing.
        served = "served" in self.keys
        self.offsets = shard.get_tensor("offsets").long() if served else torch.zeros(len(self.clients) + 1)

    def chunks(self, victims_per_view: int, pseudonyms: set[int] | None, *, by_size: bool = True) -> Iterator[Tensor]:
        """Positions of victims in ascending size, or else by pseudonym, as many as fit into a view."""
        sizes = self.offsets.diff()
        order = torch.argsort(sizes if by_size else self.clients, stable=True)
        if pseudonyms is not None:
            order = order[[name in pseudonyms for name in self.clients[order].tolist()]]
        shapes = {name: torch.Size(value["shape"]) for name, value in self.manifest.parameters.items()}
        tables = self.manifest.row_parameters
        dense = sum(shape.numel() for name, shape in shapes.items() if name not in tables)
        width = self._own_features() + sum(shapes[name][1:].numel() for name in tables)
        chunk: list[int] = []
        for position in order.tolist():
            numbers = (len(chunk) + 1) * (dense + width * int(sizes[position]))
            if chunk and (len(chunk) == victims_per_view or numbers > _NUMBERS_PER_VIEW):
                yield torch.tensor(chunk)
                chunk = []
            chunk.append(position)
        if chunk:
            yield torch.tensor(chunk)

    def _own_features(self) -> int:
        """Features of an item in `ITEM_FEATURES`; 0 if there are none or all clients share one list of items."""
        if ITEM_FEATURES not in self.keys:
            return 0
        sizes, served = self.offsets.diff(), self.shard.get_tensor("served")
        even = bool((sizes == sizes[0]).all())
        alike = even and bool((served.reshape(len(sizes), -1) == served[: int(sizes[0])]).all())
        return 0 if alike else int(self.shard.get_slice(ITEM_FEATURES).get_shape()[1])

    def view(self, chunk: Tensor, learner: ClientAlgorithm | None) -> RoundView:
        """The view of the victims at some positions.

        Args:
            chunk: ``(V,)`` positions.
            learner: the clients' algorithm; None if it is unknown.

        Raises:
            InputError: a delta is not finite.
        """
        shard, keys, manifest = self.shard, self.keys, self.manifest
        deltas = {}
        for parameter in manifest.parameters:
            if parameter in manifest.row_parameters:
                value = _ragged(shard.get_slice(f"rows/{parameter}"), chunk, self.offsets, 0)
            else:
                value = _of_clients(shard.get_slice(f"deltas/{parameter}"), chunk)
            deltas[parameter] = value.to(view_dtype(manifest))
            # A finite sum needs one pass; an infinite one may only have overflowed.
            if not bool(deltas[parameter].sum().isfinite()) and not bool(torch.isfinite(deltas[parameter]).all()):
                raise damaged(self.name, f"NaN or infinity in the deltas of {parameter!r}")
        shown = {
            kind: _ragged(shard.get_slice(kind), chunk, self.offsets, padding)
            for kind, padding in SHOWN.items()
            if kind in keys
        }
        served = shown.get("served")
        if ITEM_FEATURES in keys and served is not None:
            shown["features"] = features_of(shard.get_tensor(ITEM_FEATURES).to(view_dtype(manifest)), served)
        own_models = {
            key.removeprefix(CLIENT_MODEL): _of_clients(shard.get_slice(key), chunk).to(view_dtype(manifest))
            for key in sorted(keys)
            if key.startswith(CLIENT_MODEL)
        }
        priors = {name.removeprefix(PRIOR): shard.get_tensor(name)[chunk] for name in keys if name.startswith(PRIOR)}
        manipulation = manifest.config.get("manipulation")
        return RoundView(
            round=self.round,
            pseudonyms=self.clients[chunk],
            example_counts=shard.get_tensor("counts")[chunk].long(),
            deltas=deltas,
            model=self.model,
            row_parameters=frozenset(manifest.row_parameters),
            served=served,
            lists=shown.get("lists"),
            features=shown.get("features"),
            client_models=own_models or None,
            releases=tuple(Release(**{**r, "parameters": tuple(r["parameters"])}) for r in manifest.releases),
            rounded=frozenset(n for n, own in manifest.parameters.items() if own["dtype"] in ("float16", "bfloat16")),
            algorithm=learner,
            updates=shown.get("updates"),
            messages=shard.get_tensor(MESSAGES)[chunk].long() if MESSAGES in keys else None,
            participants=shard.get_tensor(PARTICIPANTS)[chunk] if PARTICIPANTS in keys else None,
            auxiliary=self.auxiliary,
            priors=self._popularity(self.clients[chunk], served) | priors,
            manipulation=manipulation if isinstance(manipulation, str) else None,
        )

    def _popularity(self, pseudonyms: Tensor, served: Tensor | None) -> dict[str, Tensor]:
        """Number of users of other folds who interacted with each served item, if the server recorded that."""
        counts = self.auxiliary.get(POPULARITY_OF_OTHERS)
        if counts is None or served is None:
            return {}
        own = counts[pseudonyms % len(counts)]
        return {POPULARITY: own.gather(1, served.clamp(min=0, max=own.shape[1] - 1).long()) * (served >= 0)}


def truth_of(shard: Any, positions: Tensor, width: int, client: str) -> dict[str, Tensor]:
    """Ground truth of some clients, ``(V, ...)`` by name.

    Args:
        shard: the opened file of ``truth/``.
        positions: ``(V,)`` positions of the clients in it.
        width: number of items to which values of items are padded with zeros.
        client: prefix of the names of values of the clients themselves.
    """
    tables = {key: shard.get_slice(key) for key in shard.keys()}  # noqa: SIM118 - no mapping
    of_clients = {key: table for key, table in tables.items() if key == "clients" or key.startswith(client)}
    of_items = {key: table for key, table in tables.items() if key not in of_clients}
    found = {key.removeprefix(client): _of_clients(table, positions) for key, table in of_clients.items()}
    offsets = of_items.pop("offsets")[:].tolist() if of_items else []
    for key, table in of_items.items():
        found[key] = torch.zeros(len(positions), width)
        for row, place in zip(found[key], positions.tolist(), strict=True):
            own = table[offsets[place] : offsets[place + 1]][:width]
            row[: len(own)] = own.float()
    return found


def _of_clients(table: Any, chunk: Tensor) -> Tensor:
    """The given rows: many from the whole table, which is faster; a few without reading the others."""
    if 2 * len(chunk) > table.get_shape()[0]:
        rows: Tensor = table[:][chunk]
        return rows
    return torch.cat([table[i : i + 1] for i in chunk.tolist()])


def _ragged(table: Any, chunk: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The rows of some clients, padded, in the types with which attacks compute (float32 or int64)."""
    shape = (len(chunk), int(offsets.diff()[chunk].max()), *table.get_shape()[1:])
    kind = torch.float32 if table[:0].is_floating_point() else torch.int64
    padded = torch.full(shape, padding, dtype=kind)
    for row, i in zip(padded, chunk.tolist(), strict=True):
        row[: int(offsets[i + 1] - offsets[i])] = table[int(offsets[i]) : int(offsets[i + 1])]
    return padded
