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
        This project; the probes are those of [London20], Protocol 2.
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
        reasons = []
        if bool((norms == 0).any()):
            reasons.append("zero rows")
        if bool(singular[-1] <= self.least_singular * singular[0]):
            reasons.append("low rank")
        if before is not None:
            likeness = torch.nn.functional.cosine_similarity(received, before, dim=1).median()
            if bool(norms.median() < self.least_size * before.norm(dim=1).median()):
                reasons.append("shrunk")
            if bool(likeness < self.least_likeness):
                reasons.append("another model")
        return reasons


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
        self._received = 0
        """Number of tables received so far."""

    def willing(self, received: Mapping[str, Tensor], clients: Tensor) -> Tensor:
        if ITEM_EMBEDDING not in received:
            raise InputError(
                expected=f"RefuseProbes with a recommender, whose item table is {ITEM_EMBEDDING}",
                found=f"a model of {', '.join(received)}",
                way_out="Remove RefuseProbes from the defences.",
            )
        table = received[ITEM_EMBEDDING].detach()
        # Clients that remember the same table decide alike, so each remembered table is compared once.
        decisions: dict[int | None, bool] = {}
        for remembered in {self._remembered.get(client) for client in clients.tolist()}:
            before = None if remembered is None else self._tables[remembered]
            decisions[remembered] = not self.check.reasons(table, before)
        is_willing = [decisions[self._remembered.get(client)] for client in clients.tolist()]
        # Who accepts the table remembers it; tables that nobody remembers are forgotten.
        self._received += 1
        self._tables[self._received] = table.clone()
        for client, accepts in zip(clients.tolist(), is_willing, strict=True):
            if accepts:
                self._remembered[client] = self._received
        still_remembered = set(self._remembered.values())
        self._tables = {number: past for number, past in self._tables.items() if number in still_remembered}
        return torch.tensor(is_willing, dtype=torch.bool)
