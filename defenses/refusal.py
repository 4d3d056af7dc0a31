"""A client that looks at the item table before it trains, and refuses one that looks made up."""

from collections.abc import Mapping

import torch
from torch import Tensor

from defenses.base import Defense
from defenses.probe_check import ProbeCheck
from protocol.errors import InputError
from protocol.view import ITEM_EMBEDDING


class RefuseProbes(Defense):
    """Refuses to train where `ProbeCheck` finds a reason; nothing is sent, and the private vector stays as it is.

    A client compares a table with that of the round in which it last took part. A table that it refuses is not
    remembered, so that a server cannot lead it away step by step from one refused table to the next.

    Args:
        check: what counts as a reason.
    """

    def __init__(self, *, check: ProbeCheck = ProbeCheck()) -> None:  # noqa: B008 - frozen
        self.check = check
        self._tables: dict[int, Tensor] = {}
        """Tables by the number of the look at which they came; only those that some client still remembers."""
        self._remembered: dict[int, int] = {}
        """By client, the look at which it last accepted a table."""
        self._looks = 0

    def willing(self, received: Mapping[str, Tensor], clients: Tensor) -> Tensor:
        if ITEM_EMBEDDING not in received:
            raise InputError(
                expected=f"RefuseProbes with a recommender, whose item table is {ITEM_EMBEDDING}",
                found=f"a model of {', '.join(received)}",
                way_out="Remove RefuseProbes from the defences.",
            )
        table = received[ITEM_EMBEDDING].detach()
        remembered = {client: self._remembered.get(client) for client in clients.tolist()}
        # Clients that remember the same table decide alike.
        trusted = {
            look: not self.check.reasons(table, None if look is None else self._tables[look])
            for look in set(remembered.values())
        }
        self._looks += 1
        self._tables[self._looks] = table.clone()
        accepted = {client: trusted[look] for client, look in remembered.items()}
        self._remembered |= {client: self._looks for client, yes in accepted.items() if yes}
        kept = set(self._remembered.values())
        self._tables = {look: value for look, value in self._tables.items() if look in kept}
        return torch.tensor([accepted[client] for client in clients.tolist()], dtype=torch.bool)
