"""A round of another system: what its clients sent, gathered into the tensors of a shard."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from datamodules.recordings.external_system import System
from datamodules.recordings.format import CLIENT
from datamodules.recordings.shape_check import check_arrays
from protocol.errors import InputError

_ITEM_TRUTH = "labels"
"""What is true of the served items; all other truth is of the clients themselves."""


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


class Round:
    """The clients of a round, gathered into the tensors of a shard."""

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
        """Takes what a client sent.

        Raises:
            InputError: it is of another model, no number, or there twice.
        """
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
                if not place:
                    self.dense[parameter] = torch.empty(self.clients, *value.shape)
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
                    expected=f"served items from 0 to {items - 1}", found=f"others in {where}", way_out="Correct them."
                )
        for key, value in one.truth.items():
            if not key or "/" in key or key in ("clients", "offsets") or value.is_complex():
                raise InputError(
                    expected="truth as real numbers under plain names",
                    found=f"{key[:60]!r} in {where}",
                    way_out="Give class_counts of the client, or labels of the served items.",
                )
        labels = one.truth.get(_ITEM_TRUTH)
        if labels is not None and one.served is not None and labels.shape != one.served.shape:
            raise InputError(
                expected=f"{len(one.served)} labels, one of each served item",
                found=f"{tuple(labels.shape)} in {where}",
                way_out="Give them in the order of 'served'.",
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
