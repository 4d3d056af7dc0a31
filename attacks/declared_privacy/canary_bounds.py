"""Coins of canaries from the updates, and the lower bounds of epsilon that follow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.epsilon_bounds import (
    canaries_to_show,
    clopper_pearson_epsilon,
    epsilon_of_mu,
    fewest_canaries,
    fixed_abstention,
    fixed_threshold,
    gaussian_bound,
    one_run_epsilon,
    one_run_fdp_epsilon,
)
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.history import History
from fedleak.core.metric_table import POSITIVE, SHARE, Metric
from fedleak.core.ranges import OpenUnitInterval
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS, CANARY_PSEUDONYMS, View

_FLOOR = 1e-6
"""Smallest standard deviation of noise, relative to the distance of the worlds: that of rounding to float32."""
_UNDECLARED = 10.0
"""Distance of the worlds, in standard deviations, for which thresholds are fixed where no noise is declared."""
_ASSUMES = {
    "epsilon-cp": "canaries are independent; a threshold fixed before the scores were seen",
    "epsilon-one-run": "nothing but fair, independent coins",
    "epsilon-one-run-fdp": "a Gaussian trade-off curve",
    "epsilon-gdp": "Gaussian scores, which a Kolmogorov-Smirnov test at 0.01 did not reject",
}


@dataclass(frozen=True, kw_only=True)
class CanaryEstimate(Estimate):
    """The coin of each canary, as a score.

    Attributes:
        clients: ``(N,)`` pseudonyms of the canaries.
        scores: ``(N,)`` float64, above 0 if the coin is rather +1; of variance 1.
        distances: ``(N,)`` float64 distance of a canary's two worlds over all rounds, in units of the largest distance
            of one message.
        declared: epsilon that the recording declares for the client with most messages; infinite without noise.
        delta: of every epsilon.
        rounds: number of rounds in which canaries sent.
        threshold: score above which a canary is decided to be +1, fixed without the scores.
        abstention: absolute score below which no coin is guessed, fixed without the scores.
        draw: a draw of N(0, 1), for the test of Gaussianity.
    """

    inferred = "in which of two worlds a canary client lives"
    truth = ("coin",)
    metrics = (
        Metric(
            "coin", "Coin is the share of canaries whose coin is guessed right.", guessing=0.5, binary=True, span=SHARE
        ),
        Metric(
            "epsilon-cp", "Epsilon (cp) is a lower bound at 95 % by Clopper-Pearson, 0 for no evidence.", span=POSITIVE
        ),
        Metric(
            "epsilon-one-run",
            "Epsilon (one-run) is a lower bound at 95 % that assumes nothing but fair coins.",
            span=POSITIVE,
        ),
        Metric(
            "epsilon-one-run-fdp",
            "Epsilon (one-run, f-DP) is a lower bound at 95 % for a Gaussian trade-off.",
            span=POSITIVE,
        ),
        Metric("epsilon-gdp", "Epsilon (gdp) is a lower bound at 95 % for Gaussian scores.", span=POSITIVE),
    )
    clients: Tensor
    scores: Tensor
    distances: Tensor
    declared: float
    delta: float
    rounds: int
    threshold: float
    abstention: float
    draw: float

    def check(self, view: View) -> None:
        size = (len(self.clients),)
        check_tensor("clients", self.clients, size, dtype=torch.int64)
        check_tensor("scores", self.scores, size)
        check_tensor("distances", self.distances, size)
        if not bool((self.distances > 0).all()):
            raise EstimateError("distances: expected numbers above 0")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """Coins guessed right, the bounds, which are the same number for every canary, and their table.

        Raises:
            ViewError: the coins of the canaries are missing, or there are too few canaries to say anything.
        """
        coin_of = dict(zip(view.pseudonyms.tolist(), truth["coin"].tolist(), strict=True))
        coins = torch.tensor([coin_of.get(client, 0) for client in self.clients.tolist()], dtype=torch.float64)
        if not bool((coins.abs() == 1).all()):
            raise ViewError(f"the ground truth has no coin of {int((coins.abs() != 1).sum())} of the canaries")
        count, least = len(coins), fewest_canaries(self.delta)
        if count < least or not 0 < int((coins > 0).sum()) < count:
            raise ViewError(f"{self._too_few(count, least)}")
        bounds, why_not, counts = self._bounds(coins.numpy())
        right = ((self.scores > 0) == (coins > 0)).double()
        metrics = {"coin": right} | {name: torch.full_like(right, value) for name, value in bounds.items()}
        rows = [{**self._row(name, bounds.get(name), count, why_not), **counts.get(name, {})} for name in _ASSUMES]
        ones = torch.ones(count, dtype=torch.int64)
        return Scores(metrics, ones, (coins > 0).long(), units=self.clients, details=rows)

    def _bounds(
        self, coins: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> tuple[dict[str, float], str, dict[str, dict[str, int]]]:
        """The bounds by name, why that of Gaussian scores is not given, and the decisions that bounds count."""
        scores, plus, count = self.scores.numpy(), coins > 0, len(coins)
        above = scores > self.threshold
        kinds = {"hits": above & plus, "positives": plus, "alarms": above & ~plus, "negatives": ~plus}
        decided = {name: int(kind.sum()) for name, kind in kinds.items()}
        guessed = np.abs(scores) > self.abstention
        right, guesses = int((guessed & (scores * coins > 0)).sum()), int(guessed.sum())
        gaussian = gaussian_bound(
            (scores * coins)[None], np.square(self.distances.numpy()), delta=self.delta, draw=np.array([self.draw])
        )
        found = {
            "epsilon-cp": float(clopper_pearson_epsilon(**decided, delta=self.delta)),
            "epsilon-one-run": one_run_epsilon(right, guesses, count, delta=self.delta),
            "epsilon-one-run-fdp": float(one_run_fdp_epsilon([right], [guesses], count, delta=self.delta)[0]),
        }
        counts = {"epsilon-cp": decided, "epsilon-one-run": {"right": right, "guesses": guesses}}
        if bool(gaussian.valid[0]):
            return found | {"epsilon-gdp": float(gaussian.epsilon[0])}, "", counts
        why_not = f"the scores are not Gaussian (Kolmogorov-Smirnov, p = {float(gaussian.p_value[0]):.1e})"
        return found, why_not, counts

    def _row(self, name: str, bound: float | None, count: int, why_not: str) -> dict[str, str | float | int | None]:
        declared = self.declared if math.isfinite(self.declared) else None
        row: dict[str, str | float | int | None] = {"bound": name, "epsilon at least": bound, "declared": declared}
        row |= {"delta": self.delta, "rounds": self.rounds, "canaries": count, "assumes": _ASSUMES[name]}
        if bound is None:
            verdict = f"not given: {why_not}"
        elif declared is None:
            verdict = "no noise is declared"
        elif bound > declared:
            verdict = "refuted: the declared epsilon is false, at 95 %"
        else:
            verdict = f"not refuted; the attacker was shown {bound / declared:.0%} of the budget"
        ceiling = float(clopper_pearson_epsilon(count / 2, count / 2, 0, count / 2, delta=self.delta))
        notes = {
            "epsilon-cp": f"cannot exceed about {ceiling:.1f} with {count} canaries, however large epsilon is",
            "epsilon-gdp": self._needed(),
        }
        return row | {"verdict": verdict, "note": notes.get(name, "")}

    def _needed(self) -> str:
        if not 0 < self.declared < 1000:
            return ""
        least = fewest_canaries(self.delta)
        shares = {s: max(canaries_to_show(self.declared, s, delta=self.delta), least) for s in (0.5, 0.9)}
        return ", ".join(f"{count} canaries show {share:.0%} of the budget" for share, count in shares.items())

    def _too_few(self, count: int, least: int) -> str:
        needed = self._needed()
        return f"{count} canaries are too few to say anything: at least {least} with both coins are needed" + (
            f"; {needed}" if needed else ""
        )


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
        Nasr, Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini and Terzis, "Tight Auditing of Differentially Private
        Machine Learning", USENIX Security 2023, arXiv:2302.07956. The bounds: `epsilon_bounds`.
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
        canaries, clip, noise, rounds = _sums(view)
        names = torch.tensor(sorted(canaries), dtype=torch.int64)
        inner, squares, rest, numbers, sends = torch.tensor([canaries[name] for name in names.tolist()]).unbind(1)
        if not bool(squares.any()):
            raise ViewError("the two worlds of every canary are the same")
        squares = squares.clamp(min=_FLOOR**2 * float(squares.max()))
        # The rest of a message is noise alone; with one number there is none.
        spread = (rest / (numbers - sends).clamp(min=1)).sqrt().maximum(_FLOOR * squares.sqrt())
        distance = squares.sqrt() / noise if noise else torch.full_like(squares, _UNDECLARED)
        expected, count = float(distance.mean()), len(names)
        mu = math.inf if noise == 0 or clip is None else 2 * clip * math.sqrt(float(sends.max())) / noise
        return CanaryEstimate(
            clients=names,
            scores=self.scores_of(inner / (spread * squares.sqrt()), generator),
            distances=(squares / squares.max() * sends.max()).sqrt(),
            declared=float(epsilon_of_mu(mu, self.delta)) if math.isfinite(mu) else math.inf,
            delta=self.delta,
            rounds=rounds,
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
    """

    name: ClassVar[str] = "coin-guess"
    baseline: ClassVar[bool] = True
    control: ClassVar[bool] = True

    def scores_of(self, matched: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(matched.shape, generator=generator, dtype=matched.dtype)


def _sums(view: History) -> tuple[dict[int, list[float]], float | None, float, int]:
    """By canary its sums over rounds; the clip; the declared standard deviation of the noise; the number of rounds.

    The sums are the inner product of message and direction, the squared distance of the worlds, the squared rest of the
    message, the number of numbers, and the number of messages.

    Raises:
        ViewError: no message is of a canary, or what it would send was not recorded.
    """
    found: dict[int, list[float]] = {}
    clip, noise, sent = None, 0.0, dict[int, int]()
    for part in view.each_part(torch.isin(view.pseudonyms, view.auxiliary[CANARY_PSEUDONYMS]).nonzero().flatten()):
        noised = [name for name in part.deltas if part.noise_scale(name) > 0] or list(part.deltas)
        if not any(f"{CANARY_PLUS}{name}" in part.priors for name in noised):
            raise ViewError("the recording lacks what canaries would send in both worlds (prior/canary/...)")
        clip, noise = part.clip(noised[0]), part.noise_scale(noised[0])
        most = 1 if part.messages is None else int(part.messages.max())
        sent[part.round] = max(most, sent.get(part.round, 0))
        for name, sums in zip(part.pseudonyms.tolist(), _of_messages(part, noised).tolist(), strict=True):
            found[name] = [a + b for a, b in zip(sums, found.get(name, [0.0] * len(sums)), strict=True)]
    if not found:
        raise ViewError("no message in the recording is of a canary")
    return found, clip, noise, sum(sent.values())


def _of_messages(view: View, names: list[str]) -> Tensor:
    """``(V, 5)`` the sums of `_sums` for one message of each client."""
    plus = {name: _as_sent(view, name, CANARY_PLUS) for name in view.deltas}
    opposite = not any(name.startswith(CANARY_MINUS) for name in view.priors)
    minus = {name: -plus[name] if opposite else _as_sent(view, name, CANARY_MINUS) for name in view.deltas}
    sums = torch.zeros(view.victims, 5, dtype=torch.float64)
    energy = torch.zeros(view.victims, dtype=torch.float64)
    for name in names:
        one, other = (_clipped(view, name, world) for world in (plus, minus))
        direction = (one - other).flatten(1).double()
        offset = (view.deltas[name] - (one + other) / 2).flatten(1).double()
        sums[:, 0] += (offset * direction).sum(1)
        sums[:, 1] += direction.square().sum(1)
        energy += offset.square().sum(1)
        rows = name in view.row_parameters and view.served is not None
        numbers = view.served_mask.sum(1) * view.deltas[name][0, 0].numel() if rows else view.deltas[name][0].numel()
        sums[:, 3] += numbers
    sums[:, 2] = (energy - sums[:, 0].square() / sums[:, 1].clamp(min=1e-300)).clamp(min=0)
    sums[:, 4] = 1
    return sums


def _as_sent(view: View, name: str, world: str) -> Tensor:
    """A canary's update in a world, with as many rows as the recorded delta."""
    delta, value = view.deltas[name], view.priors[f"{world}{name}"].float()
    if name not in view.row_parameters:
        return value
    made = torch.zeros_like(delta)
    width = min(delta.shape[1], value.shape[1])
    made[:, :width] = value[:, :width]
    return made


def _clipped(view: View, name: str, deltas: Mapping[str, Tensor]) -> Tensor:
    factors = view.clip_factors(name, deltas).to(deltas[name])
    return deltas[name] * factors.reshape(-1, *[1] * (deltas[name].dim() - 1))
