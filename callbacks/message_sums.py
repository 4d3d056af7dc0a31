"""Sums of clients' messages over honest rounds, recorded after given numbers of messages."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedleak.core.errors import require
from fedleak.training.round_record import RoundRecord
from fedleak_recorder.format import CLIENT_MODEL


class MessageSums:
    """Sums of some clients' messages, returned as a round's record after given numbers of messages.

    Memory grows with the number of clients times the rows of the row parameters, not with the number of rounds.

    Args:
        clients: ``(V,)`` client numbers, ascending.
        after: numbers of messages.
    """

    def __init__(self, clients: Tensor, after: Sequence[int]) -> None:
        self.clients, self.after = clients, torch.tensor(sorted(after))
        self._messages = torch.zeros(len(clients), dtype=torch.int64)
        self._sums: dict[str, Tensor] = {}
        self._updates = torch.zeros(0)
        self._truth: dict[str, Tensor] = {}

    def add(self, record: RoundRecord) -> RoundRecord | None:
        """Adds a round; returns a record of the sums of the clients that reach one of the numbers, None without any.

        Raises:
            InputError: the server serves something else than rows of a table.
        """
        sent = record.item_features is not None or any(name.startswith(CLIENT_MODEL) for name in record.of_clients)
        rows_only = not sent and set(record.served) == ({"served"} if record.update.rows else set())
        found, expected = ", ".join(record.served), "sums_at with a server that serves rows of a table, or nothing"
        require(rows_only, expected, found or "a model per client", "Remove sums_at from DeltaRecorder.")
        clients = record.cohort.clients.cpu()
        here = torch.isin(clients, self.clients).nonzero().flatten()
        places = torch.searchsorted(self.clients, clients[here])
        self._messages[places] += 1
        for name, delta in record.update.deltas.items():
            self._add_delta(name, delta[here].detach().cpu(), record, here, places)
        for name, value in record.truth.items():
            # The ground truth of each item when it was last served.
            owner, place, item = _real(record.served["served"][here].cpu())
            if name not in self._truth:
                self._truth[name] = torch.zeros(self._updates.shape, dtype=value.dtype)
            self._truth[name][places[owner], item] = value[here].cpu()[owner, place]
        due = torch.isin(self._messages[places], self.after)
        return self._record(record, here[due], places[due]) if bool(due.any()) else None

    def _add_delta(self, name: str, delta: Tensor, record: RoundRecord, here: Tensor, places: Tensor) -> None:
        rows = record.update.rows.get(name)
        shape = record.model[name].shape
        if name not in self._sums:
            self._sums[name] = torch.zeros(len(self.clients), *shape)
        if rows is None:
            self._sums[name][places] += delta
            return
        owner, place, item = _real(rows[here].cpu())
        self._sums[name][places[owner], item] += delta[owner, place]
        if not len(self._updates):
            self._updates = torch.zeros(len(self.clients), shape[0], dtype=torch.int32)
        changed = delta[owner, place].flatten(1).abs().sum(1) > 0
        self._updates[places[owner], item] += changed.int()

    def _record(self, record: RoundRecord, here: Tensor, places: Tensor) -> RoundRecord:
        """Record of a round whose messages are the sums."""
        rows, served, truth = {}, {}, {}
        if len(self._updates):
            of_each = [row.nonzero().flatten() for row in self._updates[places]]
            items = torch.nn.utils.rnn.pad_sequence(of_each, batch_first=True, padding_value=-1)
            index = items.clamp(min=0)
            served = {"served": items, "updates": self._updates[places].gather(1, index).long()}
            truth = {name: value[places[:, None], index] for name, value in self._truth.items()}
            rows = dict.fromkeys(record.update.rows, items)
        deltas = {
            name: value[places[:, None], index] * (items >= 0)[..., None] if name in rows else value[places]
            for name, value in self._sums.items()
        }
        of_clients = {name: value[here] for name, value in record.of_clients.items()}
        return dataclasses.replace(
            record,
            cohort=record.cohort.select(here),
            update=dataclasses.replace(record.update, deltas=deltas, rows=rows, sent=None, clients=None),
            served=served,
            truth=truth,
            client_truth={name: value[here] for name, value in record.client_truth.items()},
            examples=None,
            contributors=None if record.contributors is None else record.contributors[here],
            of_clients={**of_clients, "messages": self._messages[places]},
        )

    def state_dict(self) -> dict[str, Any]:
        """Sums so far."""
        return {"messages": self._messages, "sums": self._sums, "updates": self._updates, "truth": self._truth}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the sums."""
        self._messages, self._sums = state["messages"], state["sums"]
        self._updates, self._truth = state["updates"], state["truth"]


def _real(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Client, position and item number of the entries of ``(V, R)`` that are not padding."""
    owner, place = (rows >= 0).nonzero(as_tuple=True)
    return owner, place, rows[owner, place]
