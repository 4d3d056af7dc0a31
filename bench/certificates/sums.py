"""Class shares of single clients that `rounds-to-reveal` is certain of, from sums whose errors are not declared.

What is counted are the shares of each class of each client after all rounds: those of clients whose counts are certain
are whole numbers of the examples that the client reports. The sums are simulated.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from bench.certificates import Counts
from fedleak.attacks.sums_over_rounds.tracking import SumsOf, posterior
from fedleak.attacks.sums_over_rounds.whole_numbers import is_refuted, whole_numbers_of

CLIENTS, CLASSES, TOGETHER = 20, 10, 5
_EQUAL = 1e-6
"""Difference up to which two shares are equal."""
Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Sums over rounds.

    Attributes:
        rounds: number of rounds.
        alpha: concentration of the clients' classes.
        sizes: smallest and largest number of examples of a client.
        error: standard deviation of an error of the shares that all sums have in common.
        bend: size of an error that depends on the sum's own shares, the same function in all rounds.
        noise: standard deviation of an error of each sum of its own.
        tails: scale of an error of each sum from a law with heavy tails.
        step: grid to which the sums are rounded.
        dropouts: probability of a round in which a participant is missing.
        renewed: share of the clients whose data change halfway.
        said: number of examples that clients report, over the true one.
        shuffled: whether the server has wrong participants.
        predicted: standard deviation of the error that the attack on a sum predicts.
    """

    rounds: int = 30
    alpha: float = 0.5
    sizes: tuple[int, int] = (40, 40)
    error: float = 0.0
    bend: float = 0.0
    noise: float = 0.0
    tails: float = 0.0
    step: float = 0.0
    dropouts: float = 0.0
    renewed: float = 0.0
    said: float = 1.0
    shuffled: bool = False
    predicted: float = 0.0

    def federation(self, seed: int) -> tuple[SumsOf, Array, Array]:
        """Sums, numbers of examples that clients report, and true shares ``(C, K)`` at the end."""
        draws = np.random.default_rng(seed)
        sizes = draws.integers(self.sizes[0], self.sizes[1], size=CLIENTS, endpoint=True)
        laws = draws.dirichlet(np.full(CLASSES, self.alpha), size=CLIENTS)
        counts = np.array([draws.multinomial(size, law) for size, law in zip(sizes, laws, strict=True)]).astype(float)
        common = self.error * draws.normal(size=CLASSES)
        common -= common.mean()
        weights, observed = [], []
        for number in range(self.rounds):
            if self.renewed and number == self.rounds // 2:
                for client in range(round(self.renewed * CLIENTS)):
                    law = draws.dirichlet(np.full(CLASSES, self.alpha))
                    counts[client] = draws.multinomial(sizes[client], law)
            chosen = draws.choice(CLIENTS, TOGETHER, replace=False)
            taking = np.zeros(CLIENTS)
            taking[chosen] = 1 / TOGETHER
            real = taking.copy()
            if draws.random() < self.dropouts:
                real[chosen[0]] = 0
                real /= real.sum()
            shares = real @ (counts / sizes[:, None])
            weights.append(torch.from_numpy(draws.permutation(taking) if self.shuffled else taking)[None])
            observed.append(torch.from_numpy(self._observed(shares, common, draws))[None])
        noise = [self.predicted**2] * self.rounds
        said = np.round(self.said * sizes.astype(np.float64))
        return SumsOf(weights, observed, noise), said, counts / sizes[:, None]

    def _observed(self, shares: Array, common: Array, draws: np.random.Generator) -> Array:
        bent = self.bend * (shares**2 - shares * (shares**2).sum())
        made: Array = shares + common + bent + self.noise * draws.normal(size=CLASSES)
        made = made + self.tails * draws.standard_t(1.5, size=CLASSES)
        if self.step:
            made = np.round(made / self.step) * self.step
        return made


def shares_of(setting: Setting, seed: int) -> Counts:
    """Shares that are certain at the end, and how many of them are not the client's."""
    sums, sizes, true = setting.federation(seed)
    examples = torch.from_numpy(sizes).long()
    found, _ = posterior(sums)
    found = found.with_common_error(sums.common_error)
    shares, certain = whole_numbers_of(found, found.mean, examples)
    certain &= not is_refuted(found, examples)
    wrong = (shares - torch.from_numpy(true)).abs() > _EQUAL
    return Counts(
        certified=int(certain.sum()) * CLASSES,
        false=int(wrong[certain].sum()),
        recovered=int((~wrong[certain]).sum()),
        records=true.size,
    )


SETTINGS: dict[str, Setting] = {
    "honest, 30 rounds": Setting(),
    "honest, 60 rounds": Setting(rounds=60),
    "honest, 18 rounds": Setting(rounds=18),
    "honest, all classes in all clients": Setting(alpha=100.0),
    "honest, 20 to 1,000 examples": Setting(sizes=(20, 1000)),
    "honest, 3 to 8 examples": Setting(sizes=(3, 8)),
    **{f"noise of {noise:g}": Setting(noise=noise, rounds=60) for noise in (1e-5, 1e-4, 1e-3, 2e-3, 5e-3)},
    **{f"common error of {error:g}": Setting(error=error) for error in (1e-3, 3e-3, 0.01, 0.02, 0.05, 0.2)},
    **{
        f"common error of {error:g} and noise of {noise:g}": Setting(error=error, noise=noise, rounds=60)
        for error in (3e-3, 0.02, 0.05)
        for noise in (1e-4, 1e-3, 2e-3)
    },
    "common error of 0.02, all classes in all clients": Setting(error=0.02, alpha=100.0),
    "common error of 0.02, 3 to 8 examples": Setting(error=0.02, sizes=(3, 8)),
    "common error of 0.02, 20 to 1,000 examples": Setting(error=0.02, sizes=(20, 1000)),
    "common error of 0.02 that is predicted": Setting(error=0.02, predicted=0.02),
    "an error of the sum's own shares": Setting(bend=0.05),
    "a larger error of the sum's own shares": Setting(bend=0.5),
    "heavy tails": Setting(tails=1e-3, rounds=60),
    "rounded to 0.01": Setting(step=0.01, rounds=60),
    "rounded to 0.001": Setting(step=1e-3, rounds=60),
    "dropouts in 2 of 100 rounds": Setting(dropouts=0.02, rounds=60),
    "dropouts in 10 of 100 rounds": Setting(dropouts=0.1, rounds=60),
    "a fourth of the clients with new data": Setting(renewed=0.25, rounds=60),
    "twice the examples reported": Setting(said=2.0),
    "half the examples reported": Setting(said=0.5),
    "examples reported a tenth too many": Setting(said=1.1),
    "wrong participants": Setting(shuffled=True, rounds=60),
}


def conditions() -> Mapping[str, Callable[[int], Counts]]:
    """Certain shares under each setting."""
    return {name: functools.partial(shares_of, setting) for name, setting in SETTINGS.items()}
