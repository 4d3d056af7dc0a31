"""A round of another system: what its clients sent, gathered into the arrays of a shard."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedleak_recorder.arrays import HALF, Array, cast, is_finite, numpy_type, widened
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.format import CLIENT
from fedleak_recorder.pseudonyms import pseudonym
from fedleak_recorder.sent import Sent
from fedleak_recorder.shape_check import check_arrays
from fedleak_recorder.system import System

_ITEM_TRUTH = "labels"
"""Ground truth of the served items; all other ground truth is of the clients themselves."""


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
        self.system = system
        self.number = number
        self.model = model
        self.key = key
        self.names: dict[int, str] = {}
        self.earlier: dict[int, str] = {}
        """Clients of the groups before, by pseudonym."""
        self.first: Mapping[str, Array] | None = None
        """Truth of the round's first client."""
        self.shows: bool | None = None
        """Whether the server showed items to the round's first client."""
        if before is not None:
            self.earlier = {**before.earlier, **before.names}
            self.first = before.first
            self.shows = before.shows
        self.counts: list[int] = []
        self.participants: list[Sequence[str]] = []
        self.served: list[Array] = []
        self.truths: list[Mapping[str, Array]] = []
        self.rows: dict[str, list[Array]] = {name: [] for name in system.row_parameters}
        self.row_bytes = 0
        """Bytes of the rows of tables."""
        self.clients = clients
        self.dense: dict[str, Array] = {}
        """``(clients, *shape)`` deltas of each parameter that is no table, of which the first rows are filled."""

    def add(self, sent: Sent) -> None:
        """Adds a client."""
        where = sent.where or f"what client {sent.client} sent in round {self.number}"
        message = sent.plain(where)
        name = pseudonym(message.client, self.key)
        require(
            name not in self.names and name not in self.earlier,
            f"each client once in round {self.number}",
            f"{message.client} again in {where}",
            "Combine its updates, or give the second one to another round.",
        )
        check_arrays(self._expected(message), message.arrays, where=where)
        # What the round's first client has of truth and items, all of its clients must have.
        if self.first is None:
            self.first = message.truth
        if self.shows is None:
            self.shows = message.served is not None
        self._check_served(message, where)
        self._check_truth(message, where)
        row = len(self.names)
        for parameter, value in message.arrays.items():
            if parameter in self.rows:
                # Clients have different numbers of served items, so that their rows are put together at the end.
                item_rows = self._rows(message, parameter, value)
                self.rows[parameter].append(item_rows)
                self.row_bytes += item_rows.nbytes
                continue
            if row == 0:
                self.dense[parameter] = np.empty((self.clients, *value.shape), numpy_type(self.system.dtype))
            self._write_delta(message, parameter, value, self.dense[parameter][row, ...])
        # Only now that all arrays fit, the client belongs to the group.
        self.names[name] = message.client
        self.counts.append(message.examples)
        self.participants.append(message.participants or [message.client])
        self.truths.append(message.truth)
        if message.served is not None:
            self.served.append(message.served)

    def _expected(self, message: Sent) -> dict[str, tuple[int, ...]]:
        """Shapes of a client's arrays: tables come whole, or as the rows of the served items."""
        shapes = {name: tuple(shape) for name, shape in self.system.parameters.items()}
        if message.served is None:
            return shapes
        of_served = (len(message.served),)
        for name in self.rows:
            if name not in message.arrays:
                continue
            # A table with as many rows as the model's counts as whole, also if that many items were served.
            if message.arrays[name].shape[:1] == of_served != shapes[name][:1]:
                shapes[name] = (*of_served, *shapes[name][1:])
        return shapes

    def _rows(self, message: Sent, parameter: str, value: Array) -> Array:
        """``(R, ...)`` deltas of the served items' rows of a table, which came whole or as these rows alone."""
        served = message.served
        rows = value
        if len(value) == self.system.parameters[parameter][0]:
            rows = value[served]
        before = None
        if parameter in self.model:
            before = self.model[parameter][served]
        return self._delta(message, parameter, rows, before)

    def _write_delta(self, message: Sent, parameter: str, value: Array, row: Array) -> None:
        """Writes a delta to its row, by a subtraction in single precision where it is exact enough (`_delta`)."""
        before = None
        if (message.holds or self.system.holds) == "models":
            before = self.model.get(parameter)
        arrays = [row, value]
        if before is not None:
            arrays.append(before)
        if any(array.dtype != np.float32 for array in arrays):
            row[...] = self._delta(message, parameter, value, before)
            return
        # Subtracted into the row itself, so that no large model is copied; value - 0 copies what came as a delta.
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(value, 0 if before is None else before, out=row)
        if not is_finite(row):
            self._delta(message, parameter, value, before)  # which says what is wrong

    def _delta(self, message: Sent, parameter: str, value: Array, before: Array | None) -> Array:
        """The delta, computed in double precision because it is small compared with the models.

        For models in single precision the result is that of a subtraction in single precision: 53 bits are more than
        twice 24, so rounding twice changes nothing.
        """
        where = f"{parameter!r} of {message.where}"
        if (message.holds or self.system.holds) == "deltas":
            return stored(value, self.system.dtype, where=where)
        assert before is not None
        with np.errstate(over="ignore"):
            delta = value.astype(np.float64) - before.astype(np.float64)
        return stored(delta, self.system.dtype, where=where)

    def _check_served(self, message: Sent, where: str) -> None:
        """Checks that a client has served items if the round's first one has, and that tables have their rows."""
        is_consistent = bool(self.shows)
        if message.served is None:
            # Without items nobody knows which rows of a table were sent.
            is_consistent = not self.rows and not self.shows
        require(
            is_consistent,
            "the served items of every client, or of none",
            f"others in {where}",
            "Give an array 'served' with the numbers of the items to each client.",
        )
        if message.served is not None and message.served.size and self.rows:
            items = min(int(self.system.parameters[name][0]) for name in self.rows)
            in_range = 0 <= int(message.served.min()) <= int(message.served.max()) < items
            require(in_range, f"served items from 0 to {items - 1}", f"others in {where}", "Correct them.")

    def _check_truth(self, message: Sent, where: str) -> None:
        """Checks the names of a client's truth, its labels, and that it has what the round's first client has."""
        for key, value in message.truth.items():
            # A slash would make a name of the format's own, as "client/", and complex numbers have no score.
            require(
                key and "/" not in key and key not in ("clients", "offsets") and value.dtype.kind != "c",
                "truth as real numbers under plain names",
                f"{key[:60]!r} in {where}",
                "Give class_counts of the client, or labels of the served items.",
            )
        labels = message.truth.get(_ITEM_TRUTH)
        if labels is not None and message.served is not None:
            require(
                labels.shape == message.served.shape,
                f"{len(message.served)} labels, one of each served item",
                f"{tuple(labels.shape)} in {where}",
                "Give them in the order of 'served'.",
            )
        first = self.first or {}
        require(
            message.truth.keys() == first.keys(),
            f"the truth {sorted(first)} of every client in round {self.number}",
            f"{sorted(message.truth)} in {where}",
            "Give the same of every client, or of none.",
        )

    def shards(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays that the server saw, and those of the ground truth."""
        clients = np.array(list(self.names), np.int64)
        sent_tensors = {"clients": clients, "counts": np.array(self.counts, np.int64)}
        if any(len(summed_clients) > 1 for summed_clients in self.participants):
            sent_tensors["participants"] = self._participants()
        # Room was made for the largest number of clients; fewer may have come.
        for name, deltas in self.dense.items():
            sent_tensors[f"deltas/{name}"] = deltas[: len(clients)]
        if self.served:
            # Rows offsets[c] to offsets[c + 1] are those of client c.
            sizes = [0]
            for items in self.served:
                sizes.append(len(items))
            sent_tensors["offsets"] = np.cumsum(sizes, dtype=np.int64)
            sent_tensors["served"] = np.concatenate(self.served)
            for name, item_rows in self.rows.items():
                sent_tensors[f"rows/{name}"] = np.concatenate(item_rows)
        truth_tensors: dict[str, Array] = {"clients": clients}
        names = self.truths[0] if self.truths else ()
        for name in names:
            values = [client_truth[name] for client_truth in self.truths]
            if self.served and name == _ITEM_TRUTH:
                # Truth of the items: one value for each row, as the server saw the rows.
                truth_tensors["offsets"] = sent_tensors["offsets"]
                truth_tensors[name] = np.concatenate(values)
            else:
                self._check_one_shape(name, values)
                truth_tensors[f"{CLIENT}{name}"] = np.stack(values)
        return sent_tensors, truth_tensors

    def _participants(self) -> Array:
        """``(C, P)`` pseudonyms of the clients that each message sums up, in order, padded with -1."""
        widest = max(map(len, self.participants))
        names = np.full((len(self.names), widest), -1, np.int64)
        for row, summed_clients in enumerate(self.participants):
            # Sorted, so that their order says nothing of their names.
            names[row, : len(summed_clients)] = sorted(pseudonym(client, self.key) for client in summed_clients)
        return names

    def _check_one_shape(self, name: str, values: Sequence[Array]) -> None:
        """Checks that a truth has one shape for all clients of the round, also for those of earlier groups."""
        first = (self.first or {})[name]
        shapes = sorted({str(tuple(value.shape)) for value in (*values, first)})
        expected = f"the truth {name!r} of one shape in round {self.number}"
        require(len(shapes) == 1, expected, ", ".join(shapes), "Give as many numbers of every client.")


def stored(value: Array, dtype: str, *, where: str) -> Array:
    """Numbers in the type in which a recording holds them; types of two bytes hold only what they need not round."""
    narrow = cast(value, dtype)
    stored_numbers = widened(narrow)
    # NaN is unequal to itself, so that it is refused here in a type of two bytes, and below in any other.
    if dtype in HALF and not (stored_numbers == value).all():
        raise InputError(
            expected=f"numbers that {dtype} holds exactly, for a recorder with dtype={dtype!r}",
            found=f"{value.dtype} with other numbers in {where}",
            way_out="Make the recorder with dtype='float32', or give what the client sent in its own type.",
        )
    if not np.isfinite(stored_numbers).all():
        raise InputError(
            expected=f"numbers that {dtype} can hold",
            found=f"{np.abs(value.astype(np.float64)).max():.3g} in {where}",
            way_out="Leave this client out of the round, or make the recorder with dtype='float64', which holds more.",
        )
    return narrow
