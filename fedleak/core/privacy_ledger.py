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
WORST = "worst client"
MEDIAN = "median client"
"""Of whom the rows of a ledger are."""
LEDGER_CHECKS: Mapping[str, str] = {WORST: f"ledger: {WORST}", MEDIAN: f"ledger: {MEDIAN}"}
"""``check`` of each row of a ledger, by whom it is of."""


@dataclass(frozen=True)
class PrivacyLedger:
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
        [Balle18b]. [Dong22], corollary 3.3 (composition).
    """

    clients: Tensor
    rounds: Tensor
    of: int
    epsilon: Tensor
    delta: float

    @classmethod
    def of_history(cls, view: History, *, precision: float, delta: float) -> "PrivacyLedger":
        """Ledger of all messages of a recording, of which each has ``(sensitivity / sigma)^2`` of `precision`."""
        clients, rounds = participations(view)
        # Precisions of Gaussian mechanisms add up over the rounds of a client.
        spent = [gaussian_epsilon(precision * count, delta) for count in rounds.tolist()]
        return cls(
            clients=clients,
            rounds=rounds,
            of=len(torch.unique(view.sent_in)),
            epsilon=torch.tensor(spent, dtype=torch.float64),
            delta=delta,
        )

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
        # Epsilon grows with the number of rounds, so this is the order of epsilon too.
        order = self.rounds.argsort(stable=True)
        worst = int(order[-1])
        median = int(order[(len(order) - 1) // 2])
        took_part = "took part in {} of {} rounds: epsilon of its messages at the declared noise."
        of_unlisted = ""
        if unlisted:
            of_unlisted = f" {unlisted} other participants of each sum spend as much, and are not listed."
        return (
            self._row(LEDGER_CHECKS[WORST], worst, f"It {took_part} {SUBSAMPLING}{of_unlisted}"),
            self._row(LEDGER_CHECKS[MEDIAN], median, f"It {took_part}"),
        )

    def _row(self, check: str, position: int, text: str) -> Detail:
        rounds = int(self.rounds[position])
        epsilon = float(self.epsilon[position])
        return {
            "check": check,
            "parameter": "all",
            "outcome": "computed",
            "clients": len(self.clients),
            "text": text.format(rounds, self.of),
            "declared": epsilon if epsilon < torch.inf else None,  # JSON has no infinity
            "delta": self.delta,
            "messages": rounds,
        }


def participations(view: History) -> tuple[Tensor, Tensor]:
    """``(U,)`` ascending pseudonyms of the clients, and in how many rounds each took part."""
    # Of a message that is a sum, all participants took part; of any other, its sender.
    participants = view.pseudonyms[:, None]
    if view.participants is not None:
        is_sum = (view.participants >= 0).any(1, keepdim=True)
        participants = torch.where(is_sum, view.participants, view.pseudonyms[:, None])
    sent_in = view.sent_in[:, None].expand(participants.shape)
    # A client counts once in a round, however many messages of the round it is in; -1 is padding.
    is_client = participants >= 0
    pairs = torch.unique(torch.stack([participants[is_client], sent_in[is_client]]), dim=1)
    clients, rounds = torch.unique(pairs[0], return_counts=True)
    return clients, rounds
