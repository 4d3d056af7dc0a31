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
        self.clients = clients
        self.after = torch.tensor(sorted(after))
        # Of each client: messages so far, their sum, how often it changed each row, and the truth of each row.
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
        only = {"served"} if record.update.rows else set()
        rows_only = not sent and set(record.served) == only
        shown = ", ".join(record.served)
        expected = "sums_at with a server that serves rows of a table, or nothing"
        require(rows_only, expected, shown or "a model per client", "Remove sums_at from DeltaRecorder.")
        clients = record.cohort.clients.cpu()
        # Positions in the cohort of the clients whose messages are summed, and their positions among these clients.
        in_cohort = torch.isin(clients, self.clients).nonzero().flatten()
        summed = torch.searchsorted(self.clients, clients[in_cohort])
        self._messages[summed] += 1
        for name, delta in record.update.deltas.items():
            self._add_delta(name, delta[in_cohort].detach().cpu(), record, in_cohort, summed)
        for name, value in record.truth.items():
            # The ground truth of each item when it was last served.
            owner, slot, item = _real(record.served["served"][in_cohort].cpu())
            if name not in self._truth:
                self._truth[name] = torch.zeros(self._updates.shape, dtype=value.dtype)
            of_clients = value[in_cohort].cpu()
            self._truth[name][summed[owner], item] = of_clients[owner, slot]
        # Clients that have now sent one of the numbers of messages.
        due = torch.isin(self._messages[summed], self.after)
        if bool(due.any()):
            return self._record(record, in_cohort[due], summed[due])
        return None

    def _add_delta(self, name: str, delta: Tensor, record: RoundRecord, in_cohort: Tensor, summed: Tensor) -> None:
        rows = record.update.rows.get(name)
        shape = record.model[name].shape
        if name not in self._sums:
            self._sums[name] = torch.zeros(len(self.clients), *shape)
        if rows is None:
            self._sums[name][summed] += delta
            return
        # Each client has rows of its own: add them where they stand in the whole table.
        owner, slot, item = _real(rows[in_cohort].cpu())
        self._sums[name][summed[owner], item] += delta[owner, slot]
        if not len(self._updates):
            self._updates = torch.zeros(len(self.clients), shape[0], dtype=torch.int32)
        # How often a client changed each row, not how often it was served.
        changed = delta[owner, slot].flatten(1).abs().sum(1) > 0
        self._updates[summed[owner], item] += changed.int()

    def _record(self, record: RoundRecord, in_cohort: Tensor, summed: Tensor) -> RoundRecord:
        """Record of a round whose messages are the sums."""
        rows = {}
        served = {}
        truth = {}
        if len(self._updates):
            # A client's rows are those that it has changed at least once.
            of_each = [row.nonzero().flatten() for row in self._updates[summed]]
            items = torch.nn.utils.rnn.pad_sequence(of_each, batch_first=True, padding_value=-1)
            index = items.clamp(min=0)
            served = {"served": items, "updates": self._updates[summed].gather(1, index).long()}
            truth = {name: value[summed[:, None], index] for name, value in self._truth.items()}
            rows = dict.fromkeys(record.update.rows, items)
        deltas = {}
        for name, value in self._sums.items():
            if name in rows:
                deltas[name] = value[summed[:, None], index] * (items >= 0)[..., None]
            else:
                deltas[name] = value[summed]
        of_clients = {name: value[in_cohort] for name, value in record.of_clients.items()}
        of_clients["messages"] = self._messages[summed]
        contributors = None
        if record.contributors is not None:
            contributors = record.contributors[in_cohort]
        return dataclasses.replace(
            record,
            cohort=record.cohort.select(in_cohort),
            update=dataclasses.replace(record.update, deltas=deltas, rows=rows, sent=None, clients=None),
            served=served,
            truth=truth,
            client_truth={name: value[in_cohort] for name, value in record.client_truth.items()},
            examples=None,
            contributors=contributors,
            of_clients=of_clients,
        )

    def state_dict(self) -> dict[str, Any]:
        """Sums so far."""
        return {"messages": self._messages, "sums": self._sums, "updates": self._updates, "truth": self._truth}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the sums."""
        self._messages = state["messages"]
        self._sums = state["sums"]
        self._updates = state["updates"]
        self._truth = state["truth"]


def _real(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Client, position and item number of the entries of ``(V, R)`` that are not padding."""
    owner, slot = (rows >= 0).nonzero(as_tuple=True)
    return owner, slot, rows[owner, slot]
