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

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import EqualShares
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = EqualShares()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.92
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

    Example:
        >>> import torch
        >>> from fedleak.attacks.sums_over_rounds import MeanOfSums
        >>> from fedleak.attacks.sums_over_rounds.toy import toy
        >>> view, truth = toy()
        >>> estimate = MeanOfSums()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["l1"].mean()), 2)
        0.83
    """

    name = "mean-of-sums"
    baseline = True
    control = True

    def run(self, view: History, *, generator: torch.Generator) -> SharesOverRounds:
        participants = Participants.of(view)
        sums, rounds = class_sums(view, participants, self.most, generator=generator)
        # After each round: of every client, the sum of the shares of its sums so far, and how many these are.
        summed_shares = torch.stack(
            [of_round.taking.T @ shares for of_round, shares in zip(rounds, sums.observed, strict=True)]
        ).cumsum(0)
        times_in_round = torch.stack([of_round.taking.sum(0) for of_round in rounds])
        times = times_in_round.cumsum(0)[..., None]
        # The mean of all sums so far, for clients that have not taken part yet.
        mean_of_all = torch.stack([shares.mean(0) for shares in sums.observed]).cumsum(0)
        mean_of_all = (mean_of_all / torch.arange(1, len(mean_of_all) + 1)[:, None])[:, None]
        shares = torch.where(times > 0, summed_shares / times.clamp(min=1), mean_of_all)
        return self.estimate(participants, shares)
