"""Baseline of sums over rounds: the mean of the sums that a client took part in."""

import torch

from fedleak.attacks.sums_over_rounds.base import SharesAttack, class_sums
from fedleak.attacks.sums_over_rounds.estimates import SharesOverRounds
from fedleak.attacks.sums_over_rounds.received_sums import Participants
from fedleak.core.history import History


class MeanOfSums(SharesAttack):
    """Mean class shares of the sums that a client took part in: no equation between rounds is solved.

    Clients that have not taken part yet have the mean of all sums.

    Threat model: that of `RoundsToReveal`.

    References:
        This project.
    """

    name = "mean-of-sums"
    baseline = True

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        sums, rounds = class_sums(view, participants, self.most, generator=generator)
        taking = torch.stack([own.taking.T @ values for own, values in zip(rounds, sums.observed, strict=True)])
        times = torch.stack([own.taking.sum(0) for own in rounds]).cumsum(0)[..., None]
        usual = torch.stack([values.mean(0) for values in sums.observed]).cumsum(0)
        usual = (usual / torch.arange(1, len(usual) + 1)[:, None])[:, None]
        return self.estimate(participants, torch.where(times > 0, taking.cumsum(0) / times.clamp(min=1), usual))
