"""Ledger of privacy: the rounds in which each client took part, and the epsilon of its sends together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.core.estimates import Detail
from fedleak.core.gaussian_budget import gaussian_epsilon
from fedleak.core.history import History

SUBSAMPLING = "Subsampling amplifies nothing against a server that chooses who takes part: it knows the participants."
"""Amplification needs that the sample is secret from the adversary."""
WORST, MEDIAN = "worst client", "median client"
"""Of whom the rows of a ledger are."""
LEDGER_CHECKS: Mapping[str, str] = {WORST: f"ledger: {WORST}", MEDIAN: f"ledger: {MEDIAN}"}
"""``check`` of each row of a ledger, by whom it is of."""


@dataclass(frozen=True)
class Ledger:
    """Epsilon of the clients of a recording at the declared noise, with the rounds in which they really took part.

    The sends of a client are Gaussian mechanisms, which compose exactly: `T` sends of ``(sensitivity / sigma)^2 = p``
    are as private as one of ``T p``. Every round of a client counts, also one in which it sent zeros, since its silence
    depends on its data. Nothing is credited for subsampling, whose amplification needs a sample that is secret: a
    server that chooses, or sees, who takes part knows it.

    Attributes:
        clients: ``(U,)`` pseudonyms.
        rounds: ``(U,)`` number of rounds in which each took part.
        of: number of rounds of the recording.
        epsilon: ``(U,)`` epsilon of each client's sends together.
        delta: delta of every epsilon.

    References:
        Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling: Tight Analyses via Couplings and
        Divergences", NeurIPS 2018, arXiv:1807.01647. Dong, Roth and Su, "Gaussian Differential Privacy", JRSS B, 2022,
        corollary 3.3 (composition).
    """

    clients: Tensor
    rounds: Tensor
    of: int
    epsilon: Tensor
    delta: float

    @classmethod
    def of_history(cls, view: History, *, precision: float, delta: float) -> "Ledger":
        """Ledger of all messages of a recording, of which each has ``(sensitivity / sigma)^2`` of `precision`."""
        clients, rounds = participations(view)
        spent = [gaussian_epsilon(precision * count, delta) for count in rounds.tolist()]
        return cls(clients, rounds, len(torch.unique(view.sent_in)), torch.tensor(spent, dtype=torch.float64), delta)

    def epsilon_of(self, clients: Tensor) -> Tensor:
        """``(W,)`` epsilon of some clients of the ledger, by pseudonym."""
        return self.epsilon[torch.searchsorted(self.clients, clients)]

    def rows(self, *, unlisted: int = 0) -> Sequence[Detail]:
        """Rows of the worst and of the median client; none of a single round.

        Args:
            unlisted: participants of each sum that the recording does not list.
        """
        if self.of < 2 or not len(self.clients):
            return ()
        order = self.rounds.argsort(stable=True)
        worst, median = (int(order[place]) for place in (-1, (len(order) - 1) // 2))
        took = "took part in {} of {} rounds: epsilon of its messages at the declared noise."
        others = f" {unlisted} other participants of each sum spend as much, and are not listed." if unlisted else ""
        return (
            self._row(LEDGER_CHECKS[WORST], worst, f"It {took} {SUBSAMPLING}{others}"),
            self._row(LEDGER_CHECKS[MEDIAN], median, f"It {took}"),
        )

    def _row(self, check: str, place: int, text: str) -> Detail:
        rounds, epsilon = int(self.rounds[place]), float(self.epsilon[place])
        row: Detail = {"check": check, "parameter": "all", "outcome": "computed", "clients": len(self.clients)}
        finite = epsilon if epsilon < torch.inf else None
        return {
            **row,
            "text": text.format(rounds, self.of),
            "declared": finite,
            "delta": self.delta,
            "messages": rounds,
        }


def participations(view: History) -> tuple[Tensor, Tensor]:
    """``(U,)`` ascending pseudonyms of the clients, and in how many rounds each took part."""
    taking = view.pseudonyms[:, None] if view.participants is None else view.participants
    taking = torch.where((taking >= 0).any(1, keepdim=True), taking, view.pseudonyms[:, None])
    sent_in = view.sent_in[:, None].expand(taking.shape)
    pairs = torch.unique(torch.stack([taking[taking >= 0], sent_in[taking >= 0]]), dim=1)
    clients, rounds = torch.unique(pairs[0], return_counts=True)
    return clients, rounds
