"""Clients that check a received item table before they train on it, and refuse one that looks made up."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.core.ranges import UnitInterval, check_fields
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.base import Defense


@dataclass(frozen=True, kw_only=True)
class ProbeCheck:
    """A check of item tables for zeros, low rank, or a model other than the last one; 0 disables a part.

    Attributes:
        least_singular: smallest singular value, relative to the largest, below which a table has low rank.
        least_size: median norm of the rows, relative to the previous table, below which it has shrunk.
        least_likeness: median cosine of the rows with those of the previous table, below which it is another model.

    References:
        This project; the probes are those of London, "PAC Identifiability in Federated Personalization", 2020,
        Protocol 2.
    """

    least_singular: UnitInterval = 1e-3
    least_size: UnitInterval = 0.5
    least_likeness: UnitInterval = 0.5

    def __post_init__(self) -> None:
        check_fields(self)

    def reasons(self, received: Tensor, before: Tensor | None = None) -> list[str]:
        """Reasons not to train on a received table ``(I, d)``, given the one last accepted ``(I, d)``, if any.

        They are among ``zero rows``, ``low rank``, ``shrunk`` and ``another model``.
        """
        norms = received.norm(dim=1)
        singular = torch.linalg.svdvals(received.double())
        found = {
            "zero rows": bool((norms == 0).any()),
            "low rank": bool(singular[-1] <= self.least_singular * singular[0]),
        }
        if before is not None:
            likeness = torch.nn.functional.cosine_similarity(received, before, dim=1).median()
            found["shrunk"] = bool(norms.median() < self.least_size * before.norm(dim=1).median())
            found["another model"] = bool(likeness < self.least_likeness)
        return [reason for reason, holds in found.items() if holds]


class RefuseProbes(Defense):
    """Refuses to train if `ProbeCheck` finds a reason; nothing is sent, and the private vector does not change.

    A client compares a table with the last one that it accepted. Refused tables are not remembered, so that a server
    cannot move it step by step from one refused table to the next.

    Args:
        check: the check.

    References:
        This project; see `ProbeCheck`.
    """

    def __init__(self, *, check: ProbeCheck = ProbeCheck()) -> None:
        self.check = check
        self._tables: dict[int, Tensor] = {}
        """Received tables by their number; only those that some client still remembers."""
        self._remembered: dict[int, int] = {}
        """By client, the number of the last table that it accepted."""
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
