"""Baselines of sums over rounds: equal shares of all classes, and the mean of the sums that a client took part in."""

import itertools

import torch

from fedleak.attacks.sums_over_rounds.base import SharesAttack, class_sums
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.client.last_layer import output_layer
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel


class EqualShares(SharesAttack):
    """Baseline: as many examples of each class as of any other, after every round.

    Threat model: a server that knows the classes and who took part, and does not use the sums.

    References:
        This project.
    """

    name = "equal-shares"
    baseline = True
    threat_model = ThreatModel(
        sees="no update",
        knows="the number of classes, and who took part",
        needs=("participants", "deltas"),
    )

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        rounds = list(itertools.islice(view.each_round(), self.most))
        classes = rounds[0].deltas[f"{output_layer(rounds[0])}.bias"].shape[1]
        shares = torch.full((len(rounds), len(participants.clients), classes), 1 / classes, dtype=torch.float64)
        return self.estimate(participants, shares)


class MeanOfSums(SharesAttack):
    """Mean class shares of the sums that a client took part in: no equation between rounds is solved.

    Clients that have not taken part yet have the mean of all sums.

    Threat model: that of `RoundsToReveal`.

    References:
        This project.
    """

    name = "mean-of-sums"
    baseline = True
    control = True

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        sums, rounds = class_sums(view, participants, self.most, generator=generator)
        taking = torch.stack([own.taking.T @ values for own, values in zip(rounds, sums.observed, strict=True)])
        times = torch.stack([own.taking.sum(0) for own in rounds]).cumsum(0)[..., None]
        usual = torch.stack([values.mean(0) for values in sums.observed]).cumsum(0)
        usual = (usual / torch.arange(1, len(usual) + 1)[:, None])[:, None]
        return self.estimate(participants, torch.where(times > 0, taking.cumsum(0) / times.clamp(min=1), usual))
