"""What one client sent in a round of another system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedleak_recorder.arrays import as_array
from fedleak_recorder.plain_values import whole_number
from fedleak_recorder.system import Holds

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
        beside: what it sent beside `arrays`, such as metrics; not recorded, but linted.
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
    beside: Mapping[str, Any] = field(default_factory=dict)

    def plain(self, where: str) -> "Sent":
        """The same with arrays of NumPy."""
        arrays = {}
        for name, value in self.arrays.items():
            arrays[name] = as_array(value, where=f"{name!r} of {where}")
        truth = {}
        for name, value in self.truth.items():
            truth[name] = as_array(value, where=f"the truth {name!r} of {where}")
        served = None
        if self.served is not None:
            served = as_array(self.served, where=f"the served items of {where}")
        return Sent(
            client=self.client,
            examples=whole_number(self.examples, what="a number of examples", where=where, way_out=_UNKNOWN),
            arrays=arrays,
            served=served,
            truth=truth,
            participants=self.participants,
            where=where,
            holds=self.holds,
            beside=self.beside,
        )
