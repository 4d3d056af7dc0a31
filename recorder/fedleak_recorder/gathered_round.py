"""A round of another system: what its clients sent, gathered into the arrays of a shard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedleak_recorder.arrays import HALF, Array, as_array, cast, is_finite, numpy_type, widened
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.format import CLIENT
from fedleak_recorder.plain_values import whole_number
from fedleak_recorder.pseudonyms import pseudonym
from fedleak_recorder.shape_check import check_arrays
from fedleak_recorder.system import Holds, System

_ITEM_TRUTH = "labels"
"""Ground truth of the served items; all other ground truth is of the clients themselves."""
_UNKNOWN = "Give the number of examples that the client reports, 0 if it is unknown."


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What one client sent in a round.

    Attributes:
        client: name under which the server knew it.
        examples: number of examples that it reports, of any type that holds a whole number.
        arrays: its model or its delta, in the model's order.
        served: ``(R,)`` items that the server showed it; None if the server shows nothing.
        truth: ground truth for evaluations only: ``labels (R,)`` of the served items, or values of the client itself,
            such as ``class_counts (K,)``.
        participants: names of the clients whose updates `arrays` sums up, as under secure aggregation; empty for the
            update of `client` alone.
        where: file or message, for errors.
        holds: whether `arrays` are its model or its delta; None for what the description of the system says.

    Arrays are of any framework, see `fedleak_recorder.arrays.as_array`.
    """

    client: str
    examples: Any
    arrays: Any
    served: Any = None
    truth: Mapping[str, Any] = field(default_factory=dict)
    participants: Sequence[str] = ()
    where: str = ""
    holds: Holds | None = None

    def plain(self, where: str) -> "Sent":
        """The same with arrays of NumPy."""
        return Sent(
            client=self.client,
            examples=whole_number(self.examples, what="a number of examples", where=where, way_out=_UNKNOWN),
            arrays={name: as_array(value, where=f"{name!r} of {where}") for name, value in self.arrays.items()},
            served=None if self.served is None else as_array(self.served, where=f"the served items of {where}"),
            truth={name: as_array(value, where=f"the truth {name!r} of {where}") for name, value in self.truth.items()},
            participants=self.participants,
            where=where,
            holds=self.holds,
        )


class Group:
    """Some clients of a round, gathered into the arrays of a shard.

    Args:
        system: description of the system.
        number: number of the round.
        model: the global model before the round.
        clients: largest number of clients.
        key: secret key of the pseudonyms.
        before: an earlier group of the round, whose clients have the same kinds of truth; None for the first.
    """

    def __init__(
        self,
        system: System,
        number: int,
        model: Mapping[str, Array],
        clients: int,
        key: bytes,
        before: "Group | None" = None,
    ) -> None:
        self.system, self.number, self.model, self.key = system, number, model, key
        self.names: dict[int, str] = {}
        self.earlier: dict[int, str] = {} if before is None else {**before.earlier, **before.names}
        """Clients of the groups before, by pseudonym."""
        self.first: Mapping[str, Array] | None = None if before is None else before.first
        """Truth of the round's first client."""
        self.shows: bool | None = None if before is None else before.shows
        """Whether the server showed items to the round's first client."""
        self.counts: list[int] = []
        self.participants: list[Sequence[str]] = []
        self.served: list[Array] = []
        self.truths: list[Mapping[str, Array]] = []
        self.rows: dict[str, list[Array]] = {name: [] for name in system.row_parameters}
        self.row_bytes = 0
        """Bytes of the rows of tables."""
        self.clients = clients
        self.dense: dict[str, Array] = {}

    def add(self, sent: Sent) -> None:
        """Adds a client."""
        where = sent.where or f"what client {sent.client} sent in round {self.number}"
        one = sent.plain(where)
        name = pseudonym(one.client, self.key)
        require(
            name not in self.names and name not in self.earlier,
            f"each client once in round {self.number}",
            f"{one.client} again in {where}",
            "Combine its updates, or give the second one to another round.",
        )
        check_arrays(self._expected(one), one.arrays, where=where)
        self.first = one.truth if self.first is None else self.first
        self.shows = one.served is not None if self.shows is None else self.shows
        self._check_served(one, where)
        self._check_truth(one, where)
        place = len(self.names)
        for parameter, value in one.arrays.items():
            if parameter in self.rows:
                self.rows[parameter].append(self._rows(one, parameter, value))
                self.row_bytes += self.rows[parameter][-1].nbytes
            else:
                if not place:
                    self.dense[parameter] = np.empty((self.clients, *value.shape), numpy_type(self.system.dtype))
                self._write_delta(one, parameter, value, self.dense[parameter][place, ...])
        self.names[name] = one.client
        self.counts.append(one.examples)
        self.participants.append(one.participants or [one.client])
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

    def _rows(self, one: Sent, parameter: str, value: Array) -> Array:
        served, before = one.served, self.model.get(parameter)
        whole = len(value) == self.system.parameters[parameter][0]
        rows = value[served] if whole else value
        return self._delta(one, parameter, rows, None if before is None else before[served])

    def _write_delta(self, one: Sent, parameter: str, value: Array, place: Array) -> None:
        """Writes a delta to its place, by a subtraction in single precision where it is exact enough (`_delta`)."""
        before = self.model.get(parameter) if (one.holds or self.system.holds) == "models" else None
        arrays = [place, value] if before is None else [place, value, before]
        if any(array.dtype != np.float32 for array in arrays):
            place[...] = self._delta(one, parameter, value, before)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(value, 0 if before is None else before, out=place)
        if not is_finite(place):
            self._delta(one, parameter, value, before)  # which says what is wrong

    def _delta(self, one: Sent, parameter: str, value: Array, before: Array | None) -> Array:
        """The delta, computed in double precision because it is small compared with the models.

        For models in single precision the result is that of a subtraction in single precision: 53 bits are more than
        twice 24, so rounding twice changes nothing.
        """
        where = f"{parameter!r} of {one.where}"
        if (one.holds or self.system.holds) == "deltas":
            return stored(value, self.system.dtype, where=where)
        assert before is not None
        with np.errstate(over="ignore"):
            delta = value.astype(np.float64) - before.astype(np.float64)
        return stored(delta, self.system.dtype, where=where)

    def _check_served(self, one: Sent, where: str) -> None:
        needs = bool(self.rows) or bool(self.shows)
        require(
            not needs if one.served is None else bool(self.shows),
            "the served items of every client, or of none",
            f"others in {where}",
            "Give an array 'served' with the numbers of the items to each client.",
        )
        if one.served is not None and one.served.size and self.rows:
            items = min(int(self.system.parameters[name][0]) for name in self.rows)
            right = 0 <= int(one.served.min()) <= int(one.served.max()) < items
            require(right, f"served items from 0 to {items - 1}", f"others in {where}", "Correct them.")

    def _check_truth(self, one: Sent, where: str) -> None:
        for key, value in one.truth.items():
            require(
                key and "/" not in key and key not in ("clients", "offsets") and value.dtype.kind != "c",
                "truth as real numbers under plain names",
                f"{key[:60]!r} in {where}",
                "Give class_counts of the client, or labels of the served items.",
            )
        labels = one.truth.get(_ITEM_TRUTH)
        if labels is not None and one.served is not None:
            expected = f"{len(one.served)} labels, one of each served item"
            found = f"{tuple(labels.shape)} in {where}"
            require(labels.shape == one.served.shape, expected, found, "Give them in the order of 'served'.")
        first = self.first or {}
        expected = f"the truth {sorted(first)} of every client in round {self.number}"
        found = f"{sorted(one.truth)} in {where}"
        require(one.truth.keys() == first.keys(), expected, found, "Give the same of every client, or of none.")

    def shards(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays that the server saw, and those of the ground truth."""
        clients = np.array(list(self.names), np.int64)
        seen = {"clients": clients, "counts": np.array(self.counts, np.int64)}
        truth: dict[str, Array] = {"clients": clients}
        if any(len(own) > 1 for own in self.participants):
            names = np.full((len(clients), max(map(len, self.participants))), -1, np.int64)
            for place, own in enumerate(self.participants):
                names[place, : len(own)] = sorted(pseudonym(client, self.key) for client in own)
            seen["participants"] = names
        seen |= {f"deltas/{name}": value[: len(clients)] for name, value in self.dense.items()}
        if self.served:
            sizes = [0, *(len(items) for items in self.served)]
            seen |= {"offsets": np.cumsum(sizes, dtype=np.int64), "served": np.concatenate(self.served)}
            seen |= {f"rows/{name}": np.concatenate(values) for name, values in self.rows.items()}
        for name in self.truths[0] if self.truths else ():
            values = [one[name] for one in self.truths]
            if self.served and name == _ITEM_TRUTH:
                truth |= {"offsets": seen["offsets"], name: np.concatenate(values)}
                continue
            shapes = sorted({str(tuple(value.shape)) for value in (*values, (self.first or {})[name])})
            expected = f"the truth {name!r} of one shape in round {self.number}"
            require(len(shapes) == 1, expected, ", ".join(shapes), "Give as many numbers of every client.")
            truth[f"{CLIENT}{name}"] = np.stack(values)
        return seen, truth


def stored(value: Array, dtype: str, *, where: str) -> Array:
    """Numbers in the type in which a recording holds them; types of two bytes hold only what they need not round."""
    narrow = cast(value, dtype)
    held = widened(narrow)
    if dtype in HALF and not (held == value).all():
        raise InputError(
            expected=f"numbers that {dtype} holds exactly, for a recorder with dtype={dtype!r}",
            found=f"{value.dtype} with other numbers in {where}",
            way_out="Make the recorder with dtype='float32', or give what the client sent in its own type.",
        )
    if not np.isfinite(held).all():
        raise InputError(
            expected=f"numbers that {dtype} can hold",
            found=f"{np.abs(value.astype(np.float64)).max():.3g} in {where}",
            way_out="Leave this client out of the round, or make the recorder with dtype='float64', which holds more.",
        )
    return narrow
