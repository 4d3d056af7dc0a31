"""Confidence sequence of a mean over persons: an interval that may be looked at after every round."""

import math
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

FALSE_STOP = 0.05
"""Probability that either end is ever on the wrong side, in any round of the whole training."""
BETS = 0.99 * 0.4 ** np.arange(5)
"""Fractions of the capital that are bet, each on its own share: large ones for few persons, small ones for many."""
SHARES = np.array([3, 4, 4, 1.5, 0.5]) / 13
"""Share of the capital for each fraction: the small ones, of thousands of persons, have many factors to multiply."""
FIRST = 0.55
"""Share of the capital that bets on first messages."""
MEANS = 0.4
"""Share that bets on persons' means so far."""
ROUND = 0.05
"""Share that bets on the newest round alone."""
EXPECTED_ROUNDS = 100
"""Rounds that share `_EXPECTED` of the capital for single looks; the later ones, without end, share the rest."""
_EXPECTED = 0.9
"""Share of the capital for single looks that the expected rounds have."""
_LAST = 0.6
"""Share of the capital for means that is bet in the last expected round."""
_STEPS = 20
"""Steps of the bisection for an end."""
_LARGEST = 1e9
"""Larger scores, infinite ones too, count as this: the capital is then smaller than it may be."""


class ConfidenceSequence:
    """Interval of the mean of bounded scores of persons, valid in all rounds together.

    A capital of 1 is bet against the hypothesis that *in no round the expected mean over clients is above* ``m``. If it
    is true, the capital ever reaches ``1 / alpha`` with a probability of at most alpha (Ville's inequality), however
    often one looks and whenever one stops. The lower end is the largest ``m`` whose capital has reached it. A person
    with score ``x`` of at least `low` multiplies a capital by ``1 + f (x - m) / (m - low)``, for each ``f`` of `BETS`
    on a share of its own (`SHARES`): the capital process of the first reference with constant bets, mixed.

    Messages of one person are not independent, so a person's further messages do not multiply its first one. Of the
    capital,

    * `FIRST` bets on the first message of each person, from round to round;
    * `MEANS` is divided over a few rounds and bets in each on the mean of each person's messages so far. These are, for
      n expected rounds, round n; rounds n/2, n/4 and so on; and rounds 2n, 4n and so on. The means of consecutive
      rounds are nearly the same, so few looks tell as much as many, and each has a larger share;
    * `ROUND` is divided over all rounds, and bets on the round's own messages, so that a leak may begin late.

    The divided parts are sums, over rounds, of numbers whose expectation is at most their share: nothing is assumed of
    the dependence of rounds on each other. Within a round, given what the server sent, persons are assumed to be
    independent of each other; they may differ, because with one ``f`` for all of them the expected product is largest
    where all expectations are equal (inequality of the arithmetic and the geometric mean). Which persons take part must
    not depend on their scores. Scores of clients that affect each other's, such as an AUC over pairs of clients, enter
    as one number for each round, their mean, which needs no independence within the round.

    The upper end is the same for the mirrored scores. It is about the mean if that is the same in all rounds.

    Args:
        low: least possible score.
        high: largest possible one; infinite if there is none, then no upper end is known.
        rounds: see `EXPECTED_ROUNDS`.

    References:
        [WaudbySmith24], section 4 (capital process).
        [Howard21] (confidence sequences, and mixtures).

    Example:
        >>> sequence = ConfidenceSequence(0, 1)
        >>> sequence.add_round(range(60), np.full(60, 0.7))
        >>> low, high = sequence.interval()
        >>> bool(0.5 < low < 0.7 < high < 0.9)
        True
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, *, rounds: int = EXPECTED_ROUNDS) -> None:
        self.low = low
        self.high = high
        self.expected = rounds
        # Sum and number of each person's scores, then arrays by round: of new persons, persons' means, and all scores.
        self._sums: dict[Hashable, tuple[float, int]] = {}
        self._first: list[Values] = []
        self._means: list[Values] = []
        self._rounds: list[Values] = []

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return len(self._rounds)

    @property
    def persons(self) -> int:
        """Number of different persons so far; of rounds, where clients affect each other's scores."""
        return len(self._sums)

    @property
    def mean(self) -> float:
        """Mean over persons of the mean of their messages; NaN before the first one."""
        """Mean over persons of the mean of their messages; NaN before the first one."""
        if not self._sums:
            return math.nan
        return float(np.mean([total / count for total, count in self._sums.values()]))

    def add_round(self, persons: Sequence[Hashable], values: npt.ArrayLike, *, joint: bool = False) -> None:
        """Adds the scores of a round, which are not empty.

        Args:
            persons: ``(P,)`` distinct persons.
            values: ``(P,)`` their scores, from `low` to `high`; a billion for larger ones.
            joint: whether clients affect each other's scores.
        """
        highest = min(self.high, _LARGEST)
        scores = np.clip(np.asarray(values, dtype=float), self.low, highest)
        # Scores that affect each other enter as one, of a person of this round alone.
        if joint:
            persons = [("round", self.rounds)]
            scores = scores.mean(keepdims=True)
        is_new = np.array([person not in self._sums for person in persons], dtype=bool)
        for person, score in zip(persons, scores.tolist(), strict=True):
            total, count = self._sums.get(person, (0.0, 0))
            self._sums[person] = total + score, count + 1
        means = [total / count for total, count in self._sums.values()]
        self._first.append(scores[is_new])
        self._means.append(np.array(means))
        self._rounds.append(scores)

    def evidence(self, mean: float, *, above: bool = True) -> Values:
        """``(T,)`` capital after each round against the hypothesis that no round's mean is above, or below, `mean`."""
        if not self._rounds:
            return np.zeros(0)
        with np.errstate(over="ignore", divide="ignore"):
            # First messages: the capital of each bet is multiplied from round to round, and bets are mixed by SHARES.
            log_factors = [self._log_factors(scores, mean, above) for scores in self._first]
            first = np.exp(np.cumsum(log_factors, 0)) @ SHARES
            # Means and single rounds: a sum over rounds of what each won, from that round on.
            rounds = len(self._rounds)
            looks = np.zeros(rounds)
            self._add_looks(looks, MEANS * _weights_of_means(rounds, self.expected), self._means, mean, above)
            self._add_looks(looks, ROUND * _weights_of_rounds(rounds, self.expected), self._rounds, mean, above)
            capital: Values = FIRST * first + looks
        return capital

    def _add_looks(
        self, looks: Values, weights: Values, scores_of_rounds: Sequence[Values], mean: float, above: bool
    ) -> None:
        """Adds to the capital of single looks what each look wins times its weight, from its round on."""
        for number in weights.nonzero()[0].tolist():
            factors = np.exp(self._log_factors(scores_of_rounds[number], mean, above))
            looks[number:] += weights[number] * float(factors @ SHARES)

    def interval(self, tests: int = 1) -> tuple[float, float]:
        """Lower and upper end, each on the wrong side in any round with a probability of at most `FALSE_STOP`.

        Args:
            tests: number of sequences that are looked at together: the lower end is that for a `tests`-th of this
                probability, because one of them is enough to exceed a limit. All of them must be below it to keep it,
                so the upper end stays.
        """
        low = self._end(tests / FALSE_STOP, above=True)
        high = self._end(1 / FALSE_STOP, above=False) if math.isfinite(self.high) else math.inf
        return low, max(low, high)

    def exceeds(self, limit: float, tests: int = 1) -> bool:
        """Whether the lower end is above a limit."""
        return bool((self.evidence(limit) >= tests / FALSE_STOP).any())

    def below(self, limit: float) -> bool:
        """Whether the upper end is at most a limit."""
        return math.isfinite(self.high) and bool((self.evidence(limit, above=False) >= 1 / FALSE_STOP).any())

    def _end(self, wanted: float, *, above: bool) -> float:
        """The last mean, from the lowest one up or from the highest one down, whose capital reaches `wanted`."""
        if not self._rounds:
            if above:
                return self.low
            return self.high
        top = self.high
        if not math.isfinite(top):
            # Without a largest score, twice the largest one so far.
            top = max(1.0, *(float(scores.max()) for scores in self._rounds)) * 2
        near, far = (self.low, top) if above else (self.high, self.low)
        # Bisection; `near` always reaches, so the end errs to the safe side.
        for _ in range(_STEPS):
            middle = (near + far) / 2
            if bool((self.evidence(middle, above=above) >= wanted).any()):
                near = middle
            else:
                far = middle
        return near

    def _log_factors(self, values: Values, mean: float, above: bool) -> Values:
        """``(B,)`` logarithm of the product of the factors of some persons by bet."""
        # Both sides of a hypothesis in units above 0: distances from the lowest, or from the highest possible score.
        if above:
            scores, hypothesis = values - self.low, mean - self.low
        else:
            scores, hypothesis = self.high - values, self.high - mean
        hypothesis = max(hypothesis, 1e-12)
        # sum log(1 + f (x / m - 1))
        return np.array([np.log1p(bet * (scores / hypothesis - 1)).sum() for bet in BETS.tolist()])


def _weights_of_rounds(rounds: int, expected: int) -> Values:
    """``(T,)`` share of each round in the capital for rounds alone; of all rounds without end, they sum to 1."""
    # 1 / (t (t - 1)) sums to 1 / n over all t > n, so the rounds after n expected ones share what is left.
    number = np.arange(1, rounds + 1)
    later = (1 - _EXPECTED) * expected / (number * np.maximum(number - 1.0, 1))
    return np.where(number <= expected, _EXPECTED / expected, later)


def _weights_of_means(rounds: int, expected: int) -> Values:
    """The same for persons' means: 0 in most rounds."""
    # Rounds n, n/2, n/4 ... 1: the last expected one has _LAST, and the earlier ones share the rest equally.
    looks = [expected]
    while looks[-1] > 1:
        looks.append(-(-looks[-1] // 2))
    earlier_looks = len(looks) - 1
    earlier = (_EXPECTED - _LAST) / earlier_looks if earlier_looks else 0.0
    shares = {**dict.fromkeys(looks, earlier), expected: _EXPECTED - earlier * earlier_looks}
    # Rounds 2n, 4n and so on have halves of what is left, without end.
    number = 2 * expected
    share = (1 - _EXPECTED) / 2
    while number <= rounds:
        shares[number] = share
        number *= 2
        share /= 2
    return np.array([shares.get(number, 0.0) for number in range(1, rounds + 1)])
