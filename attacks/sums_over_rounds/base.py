"""The base classes of attacks on single clients from sums over rounds, and the class shares behind the sums."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.composition.counts import right_when_rounded
from fedleak.attacks.composition.output_counts import OutputCounts
from fedleak.attacks.sums_over_rounds.estimates import Revealed, SharesOverRounds, first_revealed
from fedleak.attacks.sums_over_rounds.received_sums import Participants, RoundSums, each_round_of_sums
from fedleak.attacks.sums_over_rounds.tracking import Z95, ClientLaw, SumsOf, deviations_after
from fedleak.core.attack import Attack
from fedleak.core.declared_noise import without_refuted_noise
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.threat_model import ThreatModel

AFTER = (1, 2, 5, 10, 15, 18, 20, 22, 25, 30, 40, 50, 60, 80, 100)
"""Numbers of rounds after which clients are estimated, up to that of the recording, which is added."""
USUAL = ClientLaw(spread=0.2, error=1e-9)
"""Law of the clients by which rounds to reveal are predicted."""
_MOST_ROUNDS = 100
_CERTAIN = 0.95
"""Probability that all counts of a sum are right from which on they are whole numbers."""


@dataclass(frozen=True, kw_only=True)
class SumsAttack(Attack):
    """Base class of attacks on clients whose updates the server receives in sums.

    Args:
        after: numbers of rounds after which clients are estimated; that of the recording is added.
        most: largest number of rounds that are read.
        sensitive: size of what is uncertain about a client, below which it counts as revealed.

    Attributes:
        sees: what the server observes, for the threat models.
    """

    family = "sums-over-rounds"
    cost = "seconds per round"
    sees: ClassVar[str] = "the sum of the updates of several clients, round after round, and who took part"

    after: tuple[PositiveInt, ...] = AFTER
    most: PositiveInt = _MOST_ROUNDS
    sensitive: PositiveFloat = 0.1


class SharesAttack(SumsAttack):
    """Base class of attacks on class shares; `sensitive` is the width of the 95 % interval of a share."""

    estimates: ClassVar[type[Estimate]] = SharesOverRounds
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees=SumsAttack.sees,
        knows="the class of each row and the example counts that clients report; uses the learning rate and a few"
        " images of each class if it has them",
        needs=("participants", "deltas", "model"),
    )

    def estimate(
        self,
        participants: Participants,
        shares: Tensor,
        *,
        half: Tensor | None = None,
        predicted: Tensor | None = None,
    ) -> SharesOverRounds:
        """The estimate of ``shares (T, U, K)`` after every round.

        Args:
            participants: the clients.
            shares: any numbers; they are normalised.
            half: ``(T, U, K)`` half the width of the intervals; None for none.
            predicted: ``(T, U)`` mean width of the intervals as predicted.
        """
        # Shares that are nowhere positive say nothing: then all are equal.
        shares = shares.clamp(min=0)
        total = shares.sum(2, keepdim=True)
        shares = torch.where(total > 0, shares / total.clamp(min=1e-300), 1 / shares.shape[2])
        # Without intervals or a prediction, no client is ever revealed.
        no_bound = torch.full_like(shares, torch.nan)
        first = predicted_first = torch.full(shares.shape[1:2], torch.nan)
        low, high = no_bound, no_bound
        if half is not None:
            low = (shares - half).clamp(0, 1)
            high = (shares + half).clamp(0, 1)
            first = first_revealed((high - low).amax(2) >= self.sensitive)
        widths = no_bound[..., 0]
        if predicted is not None:
            widths = predicted
            predicted_first = first_revealed(predicted >= self.sensitive)
        # The round with index t is the state after t + 1 rounds.
        reported = torch.tensor(lengths(self.after, len(shares))) - 1
        return SharesOverRounds(
            senders=participants.clients,
            after=reported + 1,
            shares=shares[reported],
            low=low[reported],
            high=high[reported],
            predicted_interval=widths[reported],
            sensitive=self.sensitive,
            revealed=Revealed(first=first, predicted=predicted_first),
        )


def lengths(after: tuple[int, ...], rounds: int) -> list[int]:
    """Numbers of rounds after which clients are estimated: those given, and all."""
    return sorted({number for number in after if number < rounds} | {rounds})


def shuffled_participants(sums: SumsOf, orders: Sequence[Tensor]) -> SumsOf:
    """The same sums, as if other clients had taken part: by round, the order ``(C,)`` of the clients."""
    shuffled = [weights[:, order] for weights, order in zip(sums.weights, orders, strict=True)]
    return dataclasses.replace(sums, weights=shuffled)


def class_sums(
    view: History, participants: Participants, most: int, *, generator: torch.Generator
) -> tuple[SumsOf, list[RoundSums]]:
    """Mean class shares behind the sums of every round, by `output-counts`, and the rounds; computed once for a view.

    Where the clients weigh as their numbers of examples do, and the counts are certain, they are whole numbers of
    examples over that of all participants. Otherwise they are the solution of least squares alone, without bias, with
    its own variance.
    """
    return view.shared.value(("class sums", most), lambda: _class_sums(view, participants, most, generator))


def _class_sums(
    view: History, participants: Participants, most: int, generator: torch.Generator
) -> tuple[SumsOf, list[RoundSums]]:
    weights = []
    observed = []
    noise = []
    rounds = []
    declared = False
    attack = OutputCounts()
    for part in each_round_of_sums(view, participants, most):
        # Whether a client weighs as its number of examples does: then a sum has whole numbers of examples.
        examples = part.taking * participants.examples
        by_examples = torch.allclose(part.weights, examples / examples.sum(1, keepdim=True), atol=1e-6)
        round_view = without_refuted_noise(part.view)
        declared |= any(release.noise_scale for release in round_view.releases)
        shares, deviation = attack.linear_shares(round_view, generator=generator)
        all_right = right_when_rounded(deviation * part.view.example_counts[:, None]).prod(1).min()
        if by_examples and float(all_right) >= _CERTAIN:
            observed.append(attack.estimate(round_view, generator=generator).proportions.double())
            noise.append(0.0)
        else:
            observed.append(shares)
            noise.append(float(deviation.square().mean()))
        weights.append(part.weights)
        # Only who took part is needed further on, and the updates of all rounds may not fit into memory.
        without_updates = dataclasses.replace(part.view, deltas={}, model={})
        rounds.append(dataclasses.replace(part, view=without_updates))
    return SumsOf(weights, observed, noise, declared), rounds


def predicted_widths(sums: SumsOf, kinds: int) -> Tensor:
    """``(T, C)`` width of the 95 % interval of a share of about 1 in `kinds`, from participation and declared noise."""
    # Variance of a share of 1 / K for one example: the unit of the law.
    scale = (1 - 1 / kinds) / kinds
    noise = 0.0
    if sums.declared:
        noise = sums.noise[0] / scale
    law = ClientLaw(USUAL.spread, max(USUAL.error, noise))
    return 2 * Z95 * math.sqrt(scale) * deviations_after(sums.weights, law)
