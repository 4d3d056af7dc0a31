"""What a client is about to send, as the guard checks it."""

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedleak_guard.plain_message import (
    MOST_EXAMPLES,
    array_or_bytes,
    is_row_of_bytes,
    plain_array,
    plain_metrics,
    plain_name,
    shown,
    type_of_numbers,
    whole_number,
)
from fedleak_recorder.arrays import Array, cast
from fedleak_recorder.errors import InputError

Holds = Literal["models", "deltas"]
_NUMBERS_AT_ONCE = 2**16
"""Numbers that are widened to float64 at once: half a megabyte, which caches hold."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a client is about to send in a round, and what the site knows of it.

    Arrays are of any framework, see `fedleak_recorder.arrays.as_array`, or bytes. Only `sent` and `metrics` can leave.

    Attributes:
        job: name of the training.
        round: number of the round.
        sent: the client's tensors by name, its whole model or its change; None for a message of metrics alone.
        holds: which of the two.
        received: the model that the site received for this round; None if it is unknown.
        metrics: values that are sent next to the tensors.
        examples: number of training examples that the client reports; None if it reports none.
        unknown: names of parts of the message that no check covers; with any, nothing leaves.
        before_noise: the update after the clip and before the noise, as changes; None if only the message is known.
        records: ``(N, ...)`` the client's own training records, as the network gets them; None if they are not given.
        labels: ``(N,)`` their classes.
        algorithm: what the client runs, a `fedleak.client.ClientAlgorithm` of fedleak; None if it is unknown.
        network: makes the client's PyTorch network, with initial weights that it draws; None if it is unknown.
    """

    job: str
    round: int
    sent: Mapping[str, Any] | None = None
    holds: Holds = "deltas"
    received: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    examples: int | None = None
    unknown: tuple[str, ...] = ()
    before_noise: Mapping[str, Any] | None = None
    records: Any = None
    labels: Any = None
    algorithm: object | None = None
    network: Callable[[], Any] | None = None
    memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What several checks of this message share."""

    @functools.cached_property
    def dtypes(self) -> dict[str, str]:
        """Type of each sent tensor, e.g. ``"bfloat16"``, by its numbers and not by what it says of itself."""
        return {name: type_of_numbers(value, self.tensors[name]) for name, value in (self.sent or {}).items()}

    @functools.cached_property
    def tensors(self) -> dict[str, Array]:
        """Copies of the sent tensors, which nobody else can change; these are checked, and these leave.

        Raises:
            InputError: something among them is no array of numbers.
        """
        return {name: plain_array(value, where=repr(name)) for name, value in (self.sent or {}).items()}

    @functools.cached_property
    def model(self) -> dict[str, Array]:
        """The received model as arrays."""
        arrays = {}
        for name, value in (self.received or {}).items():
            arrays[name] = array_or_bytes(value, where=f"received {name!r}")
        return arrays

    @functools.cached_property
    def update(self) -> dict[str, Array]:
        """Change of each sent tensor.

        Raises:
            InputError: models were sent, and the received model is unknown or has other tensors.
        """
        return {name: self._change(name) for name in self.tensors}

    @functools.cached_property
    def changes(self) -> dict[str, Array]:
        """The changes of floating-point tensors.

        Raises:
            InputError: see `update`. Rows of bytes, as trees are sent, have no change, and nothing of them is asked.
        """
        changes = {}
        for name, value in self.tensors.items():
            if is_row_of_bytes(value):
                continue
            change = self._change(name)
            if value.dtype.kind == "f":
                changes[name] = change
        return changes

    def _change(self, name: str) -> Array:
        """Change of one sent tensor."""
        value = self.tensors[name]
        if self.holds == "deltas":
            return value
        before = self.model.get(name)
        if before is None or before.shape != value.shape:
            description = "none"
            if before is not None:
                description = f"shape {before.shape}"
            raise InputError(
                expected=f"the received tensor {name[:80]!r} of shape {value.shape}, to know the change",
                found=description,
                way_out="Give the guard the model that the client received.",
            )
        # In the type that was sent; whole numbers without a sign would wrap around below 0.
        exact = np.dtype(np.float64)
        if value.dtype.kind == "f":
            exact = value.dtype
        difference: Array = value.astype(exact, copy=False) - before.astype(exact, copy=False)
        return difference

    @functools.cached_property
    def norm(self) -> float:
        """L2 norm of `changes`."""
        return norm_of(self.changes)

    def with_changes(self, changes: Mapping[str, Array]) -> dict[str, Array]:
        """The tensors that leave if `changes` replace those of the update."""
        leaving = {}
        for name, value in self.tensors.items():
            replaced = value
            if name in changes:
                replaced = changes[name]
                if self.holds == "models":
                    replaced = self.model[name].astype(np.float64) + replaced
            # Each leaves in the type in which the client sent it.
            leaving[name] = cast(replaced, str(value.dtype))
        return leaving


MOST_UNKNOWN = 1000
"""Names of parts that no check covers, as far as they are read; one is enough to refuse a message."""


def own_copy(message: Message, *, job: str, round: int) -> Message:
    """A copy that only the guard holds: each part is read once, and what the sender changes later changes nothing.

    Training records, labels, the algorithm and the network are not copied; checks read them, and they never leave.

    Tensors stand in the order of the received model, and those that it lacks in the order of their names, so that the
    order says nothing.

    Args:
        message: of a sender.
        job: its job, as a text that the log can hold.
        round: its round.

    Raises:
        InputError: a tensor is no array of numbers, a name is no text, or the number of examples is none.
    """
    received_parts = message.received
    received = None
    if received_parts is not None:
        received = {}
        for key, value in received_parts.items():
            received[plain_name(key)] = np.array(array_or_bytes(value, where=f"received {key!r:.80}"))
    sent_parts = message.sent
    sent = None
    dtypes: dict[str, str] = {}
    if sent_parts is not None:
        copies: dict[str, Array] = {}
        for key, value in sent_parts.items():
            name = plain_name(key)
            if name in copies:
                raise InputError(expected="each tensor once", found=f"{name[:60]!a} twice", way_out="Send it once.")
            copies[name] = plain_array(value, where=f"{name[:80]!r}")
            dtypes[name] = type_of_numbers(value, copies[name])
        in_received_order = [name for name in received or {} if name in copies]
        not_received = sorted(copies.keys() - set(in_received_order))
        sent = {name: copies[name] for name in (*in_received_order, *not_received)}
    holds = plain_name(message.holds)
    if holds not in ("models", "deltas"):
        raise InputError(expected="models or deltas", found=f"{holds[:60]!a}", way_out="Say which of them is sent.")
    examples = message.examples
    if examples is not None:
        examples = whole_number(examples, what="the number of training examples", most=MOST_EXAMPLES)
    copy = Message(
        job=job,
        round=round,
        sent=sent,
        holds="models" if holds == "models" else "deltas",
        received=received,
        metrics=plain_metrics(message.metrics),
        examples=examples,
        unknown=tuple(shown(name, 80) for name in itertools.islice(message.unknown, MOST_UNKNOWN)),
        before_noise=message.before_noise,
        records=message.records,
        labels=message.labels,
        algorithm=message.algorithm,
        network=message.network,
    )
    # The arrays are copies already.
    copy.__dict__.update(tensors=sent or {}, dtypes=dtypes)
    return copy


def norm_of(arrays: Mapping[str, Array]) -> float:
    """L2 norm of all numbers together, in double precision."""
    # The order of the tensors decides about the last bits of the sum; it is that of the copy.
    return math.sqrt(sum(_square(value) for value in arrays.values()))


def _square(value: Array) -> float:
    """Sum of the squares of an array's numbers."""
    total = 0.0
    for part in parts_of(value):
        total += float(np.dot(part, part))
    return total


def parts_of(value: Array) -> Iterator[Array]:
    """The numbers of an array in float64, in parts of bounded size."""
    flat = value.reshape(-1)
    for start in range(0, len(flat), _NUMBERS_AT_ONCE):
        yield flat[start : start + _NUMBERS_AT_ONCE].astype(np.float64)


def tensors_hash(tensors: Mapping[str, Array]) -> str:
    """SHA-256 of tensors, with their names, types and shapes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        # In one order of bytes, so that all machines give the same hash; with a name's end, so that no two models with
        # different names have the same bytes.
        value = value.astype(value.dtype.newbyteorder("<"), copy=False)
        head = f"{name}\0{value.dtype.str}\0{value.shape}\0"
        digest.update(head.encode())
        digest.update(value.data if value.size else b"")
    return digest.hexdigest()
