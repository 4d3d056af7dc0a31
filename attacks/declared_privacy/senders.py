"""The clients of each message: of a sum, all that the recording lists under it."""

import hashlib
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.core.view import RoundView


@dataclass
class Senders:
    """The clients of the messages of a recording, in which a sum is listed once for each attacked participant.

    Attributes:
        sums: whether messages are sums over clients.
        messages: number of messages so far, each sum counted once.
        people: ``(K,)`` pseudonyms of the clients of each message.
        places: ``(K,)`` number of that message.
    """

    sums: bool
    messages: int = 0
    people: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    places: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    _numbers: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def add(self, view: RoundView) -> tuple[RoundView, Tensor]:
        """Adds messages of a round: those that are new, and their numbers ``(M,)``."""
        numbers = []
        new_rows = []
        for row in range(view.victims):
            # Participants of one sum sent the same message in the same round; any other message is new.
            key = (self.messages, b"")
            if self.sums:
                key = (view.round, _digest(view, row))
            number = self._numbers.setdefault(key, self.messages)
            if number == self.messages:
                new_rows.append(row)
                self.messages += 1
            numbers.append(number)
        added = torch.tensor(numbers, dtype=torch.int64)
        self.people = torch.cat([self.people, view.pseudonyms])
        self.places = torch.cat([self.places, added])
        chosen = torch.tensor(new_rows, dtype=torch.int64)
        return view.select(chosen), added[chosen]


def _digest(view: RoundView, position: int) -> bytes:
    """Hash of a message: equal for the participants of one sum, whose noise no other sum has."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(view.deltas):
        digest.update(view.deltas[name][position].double().contiguous().numpy().tobytes())
    return digest.digest()
