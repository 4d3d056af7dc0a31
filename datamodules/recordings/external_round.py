"""A round of another system: what its clients sent, gathered into the tensors of a shard."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from datamodules.recordings.external_system import System
from datamodules.recordings.format import CLIENT
from datamodules.recordings.shape_check import check_arrays
from protocol.errors import require

_ITEM_TRUTH = "labels"
"""Ground truth of the served items; all other ground truth is of the clients themselves."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What one client sent in a round.

    Attributes:
        client: name under which the server knew it.
        examples: number of examples that it reports.
        arrays: its model or its delta, in the model's order.
        served: ``(R,)`` items that the server showed it; None if the server shows nothing.
        truth: ground truth for evaluations only: ``labels (R,)`` of the served items, or values of the client itself,
            such as ``class_counts (K,)``.
        where: file or message, for errors.
    """

    client: str
    examples: int
    arrays: Mapping[str, Tensor]
    served: Tensor | None = None
    truth: Mapping[str, Tensor] = field(default_factory=dict)
    where: str = ""


class Round:
    """The clients of a round, gathered into the tensors of a shard.

    Args:
        system: description of the system.
        number: number of the round.
        model: the global model before the round; empty if it is unknown.
        clients: largest number of clients.
    """

    def __init__(self, system: System, number: int, model: Mapping[str, Tensor], clients: int) -> None:
        self.system, self.number, self.model = system, number, model
        self.names: dict[int, str] = {}
        self.counts: list[int] = []
        self.served: list[Tensor] = []
        self.truths: list[Mapping[str, Tensor]] = []
        self.rows: dict[str, list[Tensor]] = {name: [] for name in system.row_parameters}
        self.clients = clients
        self.dense: dict[str, Tensor] = {}

    def add(self, one: Sent) -> None:
        """Adds a client.

        Raises:
            InputError: its arrays are of another model or not finite, or it is there twice.
        """
        where = one.where or f"what client {one.client} sent in round {self.number}"
        name = pseudonym(one.client)
        require(
            name not in self.names,
            f"each client once in round {self.number}",
            f"{one.client} again in {where}",
            "Combine its updates, or give the second one to another round.",
        )
        check_arrays(self._expected(one), one.arrays, where=where)
        self._check_served(one, where)
        self._check_truth(one, where)
        place = len(self.names)
        for parameter, value in one.arrays.items():
            if parameter in self.rows:
                self.rows[parameter].append(self._rows(parameter, value, one.served))
            else:
                if not place:
                    self.dense[parameter] = torch.empty(self.clients, *value.shape)
                self.dense[parameter][place] = self._delta(value, self.model.get(parameter))
        self.names[name] = one.client
        self.counts.append(one.examples)
        self.truths.append(one.truth)
        if one.served is not None:
            self.served.append(one.served)

    def _expected(self, one: Sent) -> dict[str, tuple[int, ...]]:
        """Shapes of a client's arrays: tables come whole, or as the rows of the served items."""
        shapes = {name: tuple(shape) for name, shape in self.system.parameters.items()}
        for name in self.rows:
            rows = one.arrays[name].shape[:1] if name in one.arrays else ()
            if one.served is not None and rows == (len(one.served),) != shapes[name][:1]:
                shapes[name] = (len(one.served), *shapes[name][1:])
        return shapes

    def _rows(self, parameter: str, value: Tensor, served: Tensor | None) -> Tensor:
        assert served is not None
        whole = len(value) == self.system.parameters[parameter][0]
        before = self.model.get(parameter)
        return self._delta(value[served] if whole else value, None if before is None else before[served])

    def _delta(self, value: Tensor, before: Tensor | None) -> Tensor:
        """The delta, computed in double precision because it is small compared with the models."""
        if self.system.holds == "deltas":
            return value.float()
        assert before is not None
        return (value.double() - before.double()).float()

    def _check_served(self, one: Sent, where: str) -> None:
        found = f"{one.examples} in {where}"
        require(one.examples >= 0, "a number of examples", found, "Give 0 if it is unknown.")
        needs = bool(self.rows) or bool(self.served)
        require(
            not needs if one.served is None else len(self.served) == len(self.names),
            "the served items of every client, or of none",
            f"others in {where}",
            "Give an array 'served' with the numbers of the items to each client.",
        )
        if one.served is not None and one.served.numel() and self.rows:
            items = min(int(self.system.parameters[name][0]) for name in self.rows)
            right = 0 <= int(one.served.min()) <= int(one.served.max()) < items
            require(right, f"served items from 0 to {items - 1}", f"others in {where}", "Correct them.")

    def _check_truth(self, one: Sent, where: str) -> None:
        for key, value in one.truth.items():
            require(
                key and "/" not in key and key not in ("clients", "offsets") and not value.is_complex(),
                "truth as real numbers under plain names",
                f"{key[:60]!r} in {where}",
                "Give class_counts of the client, or labels of the served items.",
            )
        labels = one.truth.get(_ITEM_TRUTH)
        if labels is not None and one.served is not None:
            expected = f"{len(one.served)} labels, one of each served item"
            found = f"{tuple(labels.shape)} in {where}"
            require(labels.shape == one.served.shape, expected, found, "Give them in the order of 'served'.")
        first = self.truths[0] if self.truths else one.truth
        expected = f"the truth {sorted(first)} of every client in round {self.number}"
        found = f"{sorted(one.truth)} in {where}"
        require(one.truth.keys() == first.keys(), expected, found, "Give the same of every client, or of none.")

    def shards(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors that the server saw, and those of the ground truth.

        Raises:
            InputError: the ground truth of two clients is of different shapes.
        """
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
                continue
            shapes = sorted({str(tuple(value.shape)) for value in values})
            expected = f"the truth {name!r} of one shape in round {self.number}"
            require(len(shapes) == 1, expected, ", ".join(shapes), "Give as many numbers of every client.")
            truth[f"{CLIENT}{name}"] = torch.stack(values)
        return seen, truth


def pseudonym(client: str) -> int:
    """Pseudonym of a client, the same in every round: a hash, so that a published recording has no names."""
    return int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "big") >> 2
