"""Coins of canaries from the updates, and the lower bounds of epsilon that follow."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.declared_privacy.canary_estimate import CanaryEstimate
from fedleak.attacks.declared_privacy.canary_sums import canary_sums
from fedleak.core.attack import Attack
from fedleak.core.epsilon_bounds import epsilon_of_mu, fixed_abstention, fixed_threshold
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.ranges import OpenUnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANARY_PSEUDONYMS

_FLOOR = 1e-6
"""Smallest standard deviation of noise, relative to the distance of the worlds: that of rounding to float32."""
_UNDECLARED = 10.0
"""Distance of the worlds, in standard deviations, for which thresholds are fixed where no noise is declared."""


@dataclass(frozen=True, kw_only=True)
class CanaryBounds(Attack):
    """Likelihood-ratio test of each canary's two worlds, and lower bounds of epsilon from its errors.

    Threat model: the adversary of differential privacy. The honest-but-curious server knows which clients are
    canaries and what they would send before the clip and the noise in both worlds, and infers which world is real.

    With a and b the two clipped updates of a canary, in all rounds together, the score is ``<delta - (a + b) / 2, a -
    b> / (|a - b| s)``, where s is the standard deviation of the noise, estimated from the message outside of the
    direction ``a - b``. Under Gaussian noise it is ``N(coin |a - b| / (2 s), 1)``, the optimal test. In a secure sum
    the other clients' updates count as noise, which needs canaries with random directions (kind ``update``).
    Thresholds depend on what is declared alone.

    Args:
        delta: of every epsilon, in (0, 1).

    References:
        [Nasr23]. The bounds: `epsilon_bounds`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.declared_privacy import CanaryBounds
        >>> from fedleak.attacks.declared_privacy.toy import toy
        >>> view, truth = toy()
        >>> estimate = CanaryBounds()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["coin"].mean()), 3)
        0.795
    """

    name: ClassVar[str] = "canary-bounds"
    family: ClassVar[str] = "declared-privacy"
    estimates = CanaryEstimate
    cost: ClassVar[str] = "milliseconds per canary"
    threat_model: ClassVar[ThreatModel] = ThreatModel(
        sees="the updates of canary clients",
        knows="which clients are canaries, and their updates before clip and noise in both worlds",
        needs=("deltas", f"auxiliary:{CANARY_PSEUDONYMS}"),
    )

    delta: OpenUnitInterval = 1e-5

    def run(self, view: History, *, generator: torch.Generator) -> CanaryEstimate:
        sums = canary_sums(view)
        if not bool(sums.squares.any()):
            raise ViewError("the two worlds of every canary are the same")
        squares = sums.squares.clamp(min=_FLOOR**2 * float(sums.squares.max()))
        # The rest of a message is noise alone, of one dimension less for each message; with one number there is none.
        free_numbers = (sums.numbers - sums.sends).clamp(min=1)
        spread = (sums.rest / free_numbers).sqrt().maximum(_FLOOR * squares.sqrt())
        # Thresholds are fixed for the distance of the worlds that the declared noise gives, without the scores.
        distance = torch.full_like(squares, _UNDECLARED)
        if sums.noise:
            distance = squares.sqrt() / sums.noise
        expected = float(distance.mean())
        count = len(sums.clients)
        # A message of at most the clip in both worlds, k times: their distance is 2 clip sqrt(k).
        mu = math.inf
        if sums.noise != 0 and sums.clip is not None:
            mu = 2 * sums.clip * math.sqrt(float(sums.sends.max())) / sums.noise
        declared = math.inf
        if math.isfinite(mu):
            declared = float(epsilon_of_mu(mu, self.delta))
        return CanaryEstimate(
            clients=sums.clients,
            scores=self.scores_of(sums.inner / (spread * squares.sqrt()), generator),
            distances=(squares / squares.max() * sums.sends.max()).sqrt(),
            declared=declared,
            delta=self.delta,
            rounds=sums.rounds,
            threshold=fixed_threshold(expected, count, delta=self.delta),
            abstention=fixed_abstention(expected, count, delta=self.delta),
            draw=float(torch.randn((), generator=generator, dtype=torch.float64)),
        )

    def scores_of(self, matched: Tensor, generator: torch.Generator) -> Tensor:
        """``(N,)`` scores, from those of the likelihood-ratio test."""
        return matched


class CoinGuess(CanaryBounds):
    """Coins guessed at random: what the bounds are worth where nothing is known.

    Threat model: a server that ignores the updates.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.declared_privacy import CoinGuess
        >>> from fedleak.attacks.declared_privacy.toy import toy
        >>> view, truth = toy()
        >>> estimate = CoinGuess()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["coin"].mean()), 2)
        0.47
    """

    name: ClassVar[str] = "coin-guess"
    baseline: ClassVar[bool] = True
    control: ClassVar[bool] = True

    def scores_of(self, matched: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(matched.shape, generator=generator, dtype=matched.dtype)
