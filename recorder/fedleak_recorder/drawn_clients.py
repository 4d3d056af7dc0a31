"""Random sample of the clients of a round, drawn while their messages arrive."""

import dataclasses
import heapq

import numpy as np

from fedleak_recorder.pseudonyms import pseudonym
from fedleak_recorder.sent import Sent


class DrawnClients:
    """The clients whose pseudonyms are the smallest: a random sample, as the secret key gives the pseudonyms.

    Args:
        most: largest number of clients.
        key: secret key of the pseudonyms.
    """

    def __init__(self, most: int, key: bytes) -> None:
        self._most = most
        self._key = key
        self._sent: list[tuple[int, int, Sent]] = []
        """Heap of messages, of which the first has the largest pseudonym, the next one to be left out."""

    def add(self, message: Sent) -> None:
        """Keeps a copy of a message, if its client is among the drawn ones so far."""
        # The heap has its smallest entry first, so that pseudonyms are negated.
        rank = -pseudonym(message.client, self._key)
        if len(self._sent) == self._most and rank < self._sent[0][0]:
            return
        # The sender's arrays may change before the end of the round.
        arrays = {name: np.array(value) for name, value in message.arrays.items()}
        message_copy = dataclasses.replace(message, arrays=arrays)
        # Messages have no order; of equal ranks, numbers that differ decide.
        heapq.heappush(self._sent, (rank, -id(message_copy), message_copy))
        if len(self._sent) > self._most:
            heapq.heappop(self._sent)

    def by_pseudonym(self) -> list[Sent]:
        """The messages of the drawn clients, by pseudonym."""
        ordered = sorted(self._sent, key=lambda entry: -entry[0])
        return [message for _, _, message in ordered]
