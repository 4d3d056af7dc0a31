"""Shards of a recording cut into server views, and the ground truth of the same clients."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.release import Release
from fedleak.core.served_features import features_of
from fedleak.core.view import POPULARITY, RoundView
from fedleak.recordings.shards import damaged, view_dtype
from fedleak_recorder.format import CLIENT_MODEL, ITEM_FEATURES, POPULARITY_OF_OTHERS, PRIOR, Manifest
from fedleak_recorder.shard_check import MESSAGES, PARTICIPANTS, SHOWN

_NUMBERS_PER_VIEW = 2**25
"""Upper bound of the padded delta numbers of one view: 128 MiB of float32."""


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
        self.shard = shard
        self.name = name
        self.round = round_number
        self.manifest = manifest
        self.model = model
        self.auxiliary = auxiliary
        self.keys = set(shard.keys())
        self.clients: Tensor = shard.get_tensor("clients").long()
        # Rows offsets[i] to offsets[i + 1] are client i's. All zero if the server served nothing.
        self.offsets: Tensor = torch.zeros(len(self.clients) + 1)
        if "served" in self.keys:
            self.offsets = shard.get_tensor("offsets").long()

    def chunks(self, victims_per_view: int, pseudonyms: set[int] | None, *, by_size: bool = True) -> Iterator[Tensor]:
        """Positions of victims in ascending size, or else by pseudonym, as many as fit into a view."""
        sizes = self.offsets.diff()
        order = torch.argsort(sizes if by_size else self.clients, stable=True)
        if pseudonyms is not None:
            order = order[[name in pseudonyms for name in self.clients[order].tolist()]]
        # Numbers of a victim: those of all dense parameters, and `row_width` for each row of a table.
        dense_numbers = 0
        row_width = self._own_features()
        for name, parameter in self.manifest.parameters.items():
            shape = torch.Size(parameter["shape"])
            if name in self.manifest.row_parameters:
                row_width += shape[1:].numel()
            else:
                dense_numbers += shape.numel()
        chunk: list[int] = []
        for position in order.tolist():
            # Every victim of a view is padded to the largest, which with ascending sizes is the newest.
            numbers = (len(chunk) + 1) * (dense_numbers + row_width * int(sizes[position]))
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
        sizes = self.offsets.diff()
        served = self.shard.get_tensor("served")
        # If all clients are shown the same list, its features are stored once, see `features_of`.
        is_same_size = bool((sizes == sizes[0]).all())
        if is_same_size and bool((served.reshape(len(sizes), -1) == served[: int(sizes[0])]).all()):
            return 0
        return int(self.shard.get_slice(ITEM_FEATURES).get_shape()[1])

    def view(self, chunk: Tensor, learner: ClientAlgorithm | None) -> RoundView:
        """The view of the victims at some positions.

        Args:
            chunk: ``(V,)`` positions.
            learner: the clients' algorithm; None if it is unknown.

        Raises:
            InputError: a delta is not finite.
        """
        shard = self.shard
        keys = self.keys
        manifest = self.manifest
        deltas = self._deltas(chunk)
        shown = self._shown(chunk)
        served = shown.get("served")
        # Models of their own, if the server sent each client another one.
        client_models = {}
        for key in sorted(keys):
            if key.startswith(CLIENT_MODEL):
                parameters = _of_clients(shard.get_slice(key), chunk)
                client_models[key.removeprefix(CLIENT_MODEL)] = parameters.to(view_dtype(manifest))
        # What the server knows of each client besides its message.
        priors = self._popularity(self.clients[chunk], served)
        for key in keys:
            if key.startswith(PRIOR):
                priors[key.removeprefix(PRIOR)] = shard.get_tensor(key)[chunk]
        # The recorder may store with half of the digits what was sent with all of them.
        half_precision = ("float16", "bfloat16")
        rounded = [name for name, parameter in manifest.parameters.items() if parameter["dtype"] in half_precision]
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
            client_models=client_models or None,
            releases=tuple(_release_of(release) for release in manifest.releases),
            rounded=frozenset(rounded),
            algorithm=learner,
            updates=shown.get("updates"),
            messages=shard.get_tensor(MESSAGES)[chunk].long() if MESSAGES in keys else None,
            participants=shard.get_tensor(PARTICIPANTS)[chunk] if PARTICIPANTS in keys else None,
            auxiliary=self.auxiliary,
            priors=priors,
            manipulation=manipulation if isinstance(manipulation, str) else None,
        )

    def _shown(self, chunk: Tensor) -> dict[str, Tensor]:
        """What the server showed to the victims at some positions: items, their lists, their features."""
        shown = {}
        for kind, padding in SHOWN.items():
            if kind in self.keys:
                shown[kind] = _ragged(self.shard.get_slice(kind), chunk, self.offsets, padding)
        if ITEM_FEATURES in self.keys and "served" in shown:
            # Features are recorded once for each item.
            items = self.shard.get_tensor(ITEM_FEATURES).to(view_dtype(self.manifest))
            shown["features"] = features_of(items, shown["served"])
        return shown

    def _deltas(self, chunk: Tensor) -> dict[str, Tensor]:
        """Updates of the victims at some positions, by parameter."""
        deltas = {}
        for parameter in self.manifest.parameters:
            if parameter in self.manifest.row_parameters:
                delta = _ragged(self.shard.get_slice(f"rows/{parameter}"), chunk, self.offsets, 0)
            else:
                delta = _of_clients(self.shard.get_slice(f"deltas/{parameter}"), chunk)
            deltas[parameter] = delta.to(view_dtype(self.manifest))
            # A finite sum needs one pass; an infinite one may only have overflowed.
            if not bool(deltas[parameter].sum().isfinite()) and not bool(torch.isfinite(deltas[parameter]).all()):
                raise damaged(self.name, f"NaN or infinity in the deltas of {parameter!r}")
        return deltas

    def _popularity(self, pseudonyms: Tensor, served: Tensor | None) -> dict[str, Tensor]:
        """Number of users of other folds who interacted with each served item, if the server recorded that."""
        counts = self.auxiliary.get(POPULARITY_OF_OTHERS)
        if counts is None or served is None:
            return {}
        # Row f of the counts is without the users of fold f.
        counts_of_others = counts[pseudonyms % len(counts)]
        items = served.clamp(min=0, max=counts_of_others.shape[1] - 1).long()
        return {POPULARITY: counts_of_others.gather(1, items) * (served >= 0)}


def _release_of(description: Mapping[str, Any]) -> Release:
    return Release(**{**description, "parameters": tuple(description["parameters"])})


def truth_of(shard: Any, positions: Tensor, width: int, client: str) -> dict[str, Tensor]:
    """Ground truth of some clients, ``(V, ...)`` by name.

    Args:
        shard: the opened file of ``truth/``.
        positions: ``(V,)`` positions of the clients in it.
        width: number of items to which values of items are padded with zeros.
        client: prefix of the names of values of the clients themselves.
    """
    tables = {key: shard.get_slice(key) for key in shard.keys()}  # noqa: SIM118 - no mapping
    truth = {}
    of_items = {}
    for key, table in tables.items():
        if key == "clients" or key.startswith(client):
            truth[key.removeprefix(client)] = _of_clients(table, positions)
        else:
            of_items[key] = table
    if not of_items:
        return truth
    # Values of the served items lie one client after the other, as the items do in the shard of the round.
    offsets = of_items.pop("offsets")[:].tolist()
    for key, table in of_items.items():
        truth[key] = torch.zeros(len(positions), width)
        for row, position in zip(truth[key], positions.tolist(), strict=True):
            values = table[offsets[position] : offsets[position + 1]][:width]
            row[: len(values)] = values.float()
    return truth


def _of_clients(table: Any, chunk: Tensor) -> Tensor:
    """The given rows: many from the whole table, which is faster; a few without reading the others."""
    if 2 * len(chunk) > table.get_shape()[0]:
        rows: Tensor = table[:][chunk]
        return rows
    return torch.cat([table[i : i + 1] for i in chunk.tolist()])


def _ragged(table: Any, chunk: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The rows of some clients, padded, in the types with which attacks compute (float32 or int64)."""
    sizes = offsets.diff()[chunk]
    shape = (len(chunk), int(sizes.max()), *table.get_shape()[1:])
    kind = torch.float32 if table[:0].is_floating_point() else torch.int64
    padded = torch.full(shape, padding, dtype=kind)
    for row, position in zip(padded, chunk.tolist(), strict=True):
        begin = int(offsets[position])
        end = int(offsets[position + 1])
        row[: end - begin] = table[begin:end]
    return padded
