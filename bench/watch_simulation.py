"""Simulated federations of clients with bounded scores, for the false stops and the power of gates that look often."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedleak.evaluation.confidence_sequence import FALSE_STOP, ConfidenceSequence

Kind = Literal["new persons", "same persons", "some of many"]
"""Who takes part: persons who take part once, all persons in every round, or a tenth of all persons in each."""
LIMIT = 0.5
_TAIL = 0.025
"""Probability of a false failure of a gate that looks once, as in `fedleak.evaluation.gate`."""
Numbers = npt.NDArray[np.float64]
Round = tuple[npt.NDArray[np.int64], Numbers]
"""Persons ``(P,)`` and their scores ``(P,)``."""


@dataclass(frozen=True)
class Federation:
    """A federation whose clients have scores like an AUC.

    Attributes:
        kind: who takes part.
        mean: mean of the population from which persons are drawn.
        clients: clients of a round.
        between: standard deviation of persons' own means, drawn once for each.
        within: standard deviation of a score about its person's mean.
        rounds: number of rounds.
    """

    kind: Kind = "same persons"
    mean: float = LIMIT
    clients: int = 20
    between: float = 0.1
    within: float = 0.1
    rounds: int = 100

    def each_round(self, draws: np.random.Generator) -> Iterator[Round]:
        """The rounds of one training."""
        everyone = {"new persons": self.clients * self.rounds, "same persons": self.clients}
        persons = everyone.get(self.kind, 10 * self.clients)
        means = beta(self.mean, self.between, persons, draws)
        for number in range(self.rounds):
            if self.kind == "new persons":
                present = np.arange(self.clients) + number * self.clients
            else:
                present = draws.permutation(persons)[: self.clients]
            yield present, beta(means[present], self.within, self.clients, draws)


def beta(mean: float | Numbers, deviation: float, size: int, draws: np.random.Generator) -> Numbers:
    """Beta variables of some means and a standard deviation, which is smaller where a mean is near to 0 or 1."""
    mean = np.clip(mean, 1e-3, 1 - 1e-3)
    spread = mean * (1 - mean)
    count = spread / np.minimum(deviation**2, spread / 2) - 1
    return draws.beta(mean * count, (1 - mean) * count, size)


def sequential(rounds: list[Round]) -> int | None:
    """Number of rounds after which the gate of `watch` stops a training; None if it does not."""
    sequence = ConfidenceSequence(0, 1, rounds=len(rounds))
    for persons, scores in rounds:
        sequence.add_round(persons.tolist(), scores)
    beyond = sequence.evidence(LIMIT) >= 1 / FALSE_STOP
    return int(beyond.argmax()) + 1 if beyond.any() else None


def one_look(rounds: list[Round], *, every: bool) -> int | None:
    """The same of the gate of `audit`, over persons' means: at the end alone, or after every round."""
    persons = int(max(own.max() for own, _ in rounds)) + 1
    sums, counts = np.zeros(persons), np.zeros(persons)
    for number, (present, scores) in enumerate(rounds, start=1):
        np.add.at(sums, present, scores)
        np.add.at(counts, present, 1)
        if not every and number < len(rounds):
            continue
        means = sums[counts > 0] / counts[counts > 0]
        error = means.std(ddof=1) / len(means) ** 0.5
        if means.mean() - float(stats.t.ppf(1 - _TAIL, len(means) - 1)) * error > LIMIT:
            return number
    return None
