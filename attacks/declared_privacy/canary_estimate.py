"""Coins of canaries: the estimate, and the lower bounds of epsilon that follow from the coins guessed right."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedleak.core.epsilon_bounds import (
    canaries_to_show,
    clopper_pearson_epsilon,
    fewest_canaries,
    gaussian_bound,
    one_run_epsilon,
    one_run_fdp_epsilon,
)
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import POSITIVE, SHARE, Metric
from fedleak.core.view import View

_LARGEST_EPSILON = 1000
"""Declared epsilon up to which the number of canaries that would show it is given."""
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
        count = len(coins)
        least = fewest_canaries(self.delta)
        heads = int((coins > 0).sum())
        if count < least or not 0 < heads < count:
            raise ViewError(self._too_few(count, least))
        bounds, why_not, decisions = self._bounds(coins.numpy())
        # A coin is guessed by the sign of the score; each bound is the same number for every canary.
        is_right = ((self.scores > 0) == (coins > 0)).double()
        metrics = {"coin": is_right}
        for name, bound in bounds.items():
            metrics[name] = torch.full_like(is_right, bound)
        rows = []
        for name in _ASSUMES:
            row = self._row(name, bounds.get(name), count, why_not)
            rows.append({**row, **decisions.get(name, {})})
        ones = torch.ones(count, dtype=torch.int64)
        return Scores(metrics, ones, (coins > 0).long(), units=self.clients, details=rows)

    def _bounds(
        self, coins: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> tuple[dict[str, float], str, dict[str, dict[str, int]]]:
        """The bounds by name, why that of Gaussian scores is not given, and the decisions that bounds count."""
        scores = self.scores.numpy()
        count = len(coins)
        # Decisions at the fixed threshold, for Clopper and Pearson's bound.
        plus = coins > 0
        above = scores > self.threshold
        decided = {
            "hits": int((above & plus).sum()),
            "positives": int(plus.sum()),
            "alarms": int((above & ~plus).sum()),
            "negatives": int((~plus).sum()),
        }
        # Guesses of scores beyond the fixed abstention, for the bounds of one run.
        is_guessed = np.abs(scores) > self.abstention
        guesses = int(is_guessed.sum())
        right_guesses = int((is_guessed & (scores * coins > 0)).sum())
        bounds = {
            "epsilon-cp": float(clopper_pearson_epsilon(**decided, delta=self.delta)),
            "epsilon-one-run": one_run_epsilon(right_guesses, guesses, count, delta=self.delta),
            "epsilon-one-run-fdp": float(one_run_fdp_epsilon([right_guesses], [guesses], count, delta=self.delta)[0]),
        }
        decisions = {"epsilon-cp": decided, "epsilon-one-run": {"right": right_guesses, "guesses": guesses}}
        # Scores times coins, which are Gaussian about a distance of the worlds, for the Gaussian bound.
        gaussian = gaussian_bound(
            (scores * coins)[None],
            np.square(self.distances.numpy()),
            delta=self.delta,
            draw=np.array([self.draw]),
        )
        why_not = ""
        if bool(gaussian.valid[0]):
            bounds["epsilon-gdp"] = float(gaussian.epsilon[0])
        else:
            why_not = f"the scores are not Gaussian (Kolmogorov-Smirnov, p = {float(gaussian.p_value[0]):.1e})"
        return bounds, why_not, decisions

    def _row(self, name: str, bound: float | None, count: int, why_not: str) -> dict[str, str | float | int | None]:
        """Row of a bound: the number, what it assumes, and what it says of the declared epsilon."""
        declared = None
        if math.isfinite(self.declared):
            declared = self.declared
        if bound is None:
            verdict = f"not given: {why_not}"
        elif declared is None:
            verdict = "no noise is declared"
        elif bound > declared:
            verdict = "refuted: the declared epsilon is false, at 95 %"
        else:
            verdict = f"not refuted; the attacker was shown {bound / declared:.0%} of the budget"
        note = ""
        if name == "epsilon-cp":
            # The bound of a test that is always right.
            half = count / 2
            ceiling = float(clopper_pearson_epsilon(half, half, 0, half, delta=self.delta))
            note = f"cannot exceed about {ceiling:.1f} with {count} canaries, however large epsilon is"
        elif name == "epsilon-gdp":
            note = self._needed()
        return {
            "bound": name,
            "epsilon at least": bound,
            "declared": declared,
            "delta": self.delta,
            "rounds": self.rounds,
            "canaries": count,
            "assumes": _ASSUMES[name],
            "verdict": verdict,
            "note": note,
        }

    def _needed(self) -> str:
        """How many canaries would show a half and nine tenths of the declared epsilon; empty without a usual one."""
        if not 0 < self.declared < _LARGEST_EPSILON:
            return ""
        least = fewest_canaries(self.delta)
        sentences = []
        for share in (0.5, 0.9):
            count = max(canaries_to_show(self.declared, share, delta=self.delta), least)
            sentences.append(f"{count} canaries show {share:.0%} of the budget")
        return ", ".join(sentences)

    def _too_few(self, count: int, least: int) -> str:
        text = f"{count} canaries are too few to say anything: at least {least} with both coins are needed"
        needed = self._needed()
        if needed:
            text += f"; {needed}"
        return text
