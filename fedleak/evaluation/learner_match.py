"""Comparison of simulated with recorded updates: attacks with a learner that does not match infer too little."""

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedleak.client.simulated_clients import as_released
from fedleak.core.additions import room
from fedleak.core.class_paths import classes_in
from fedleak.core.errors import ViewError
from fedleak.core.likeness import Twins, flat_alike
from fedleak.core.view import RoundView
from fedleak.evaluation.noise_floor import declared_noise
from fedleak.evaluation.simulated_updates import simulated_updates
from fedleak.evaluation.twin_differences import TwinDifferences, next_to_try, times_in_words

_FACTOR = 3.0
"""Ratio of lengths, or its inverse, above which a learner does not match clients of any other examples."""
_USUAL = 0.95
"""Quantile of simulated clients, and 1 minus it, between which a sentence says that they are."""
_OPPOSITE = -0.2
"""Cosine of the recorded and the simulated mean update below which a sign is wrong."""
_ONE_WAY = 0.5
"""Cosine of two simulated means above which a direction says something."""
_HYPER_PARAMETERS = "learning_rate, epochs, batch_size and optimizer"
_NOISY = 0.5
"""Share of declared noise in the updates above which their lengths say nothing about the learner."""


@dataclasses.dataclass(frozen=True)
class LearnerMatch:
    """How like a learner's updates are to the recorded ones.

    Attributes:
        ratio: median length of the simulated updates over that of the recorded ones.
        tensors: the same by tensor.
        cosine: median cosine of a client's update and its twin's, see `fedleak.core.likeness.Twins`; without twins,
            that of the mean updates.
        clients: number of clients compared.
        finding: what refutes the learner, and the next thing to try; empty for nothing.
        expected: what holds for simulated clients in place of the recorded ones, for a sentence; empty without twins.
    """

    ratio: float
    tensors: dict[str, float]
    cosine: float
    clients: int
    finding: str
    expected: str = ""

    @property
    def right(self) -> bool:
        """Whether nothing refutes the learner."""
        return not self.finding

    @property
    def measured(self) -> str:
        """What was measured, as a sentence without its full stop."""
        by_ratio = sorted(self.tensors, key=lambda name: self.tensors[name])
        # The tensors with the smallest and the largest ratio, one where a model has one tensor.
        extremes = [f"{name} {self.tensors[name]:.2g} x" for name in dict.fromkeys((by_ratio[0], by_ratio[-1]))]
        kind = "median cosine" if self.expected else "cosine of the means"
        details = [
            ", ".join(extremes),
            f"{kind} {self.cosine:.2f}",
            f"n = {self.clients} clients of the first round",
        ]
        if self.expected:
            details.append(f"for simulated clients in place of the recorded ones {self.expected}")
        shares = " of clients with the same class shares" if self.expected else ""
        return (
            f"updates that the learner simulates{shares} are {self.ratio:.2g} times as long as the recorded ones"
            f" ({'; '.join(details)})"
        )


def learner_match(view: RoundView, *, generator: torch.Generator) -> LearnerMatch | str:
    """Compares updates of simulated clients with the recorded ones of a view.

    Clients of a kind that a family of attacks makes twins of (`fedleak.core.likeness.Twins`), as of classifiers, are
    compared with these, and these with what is expected of simulated clients: length, direction, ratios between
    tensors, and whole numbers of examples. Others are compared with clients of random examples, which have updates of
    another length, but not much, and another direction, but rarely the opposite one: the ratio was 0.6 to 1.7 for a
    recommender and a text model; taggers and rankers were not measured.

    A text says why there is no comparison.
    """
    noise = declared_noise(view)
    if noise is not None and not float(noise.share.nanmean()) < _NOISY:
        return f"declared noise is {float(noise.share.nanmean()):.0%} of the energy of the updates"
    if view.client_models is not None:
        return "each client was sent a model of its own"
    if view.participants is not None:
        return "the server gets sums of several clients' updates"
    if not any(bool(value.any()) for value in view.deltas.values()):
        return "the recorded updates are zero"
    twins = _twins_of(view, generator)
    if twins is None:
        return _match_of_others(view, generator)
    return _match_of_twins(view, twins)


def _twins_of(view: RoundView, generator: torch.Generator) -> Twins | None:
    """Twins of the clients of a view by the first family that can make them; None if none can."""
    for kind in classes_in(room("attacks"), Twins):
        try:
            return kind(view, generator)
        except ViewError:
            continue
    return None


def _match_of_twins(view: RoundView, twins: Twins) -> LearnerMatch:
    likeness = twins.likeness(view.deltas)
    expected = twins.expected()
    differences = TwinDifferences.of(likeness, expected)
    finding = ""
    if differences.sentence:
        finding = f"{differences.sentence}: {next_to_try(view, twins, differences, likeness, expected)}"
    # Lengths are binary logarithms of ratios.
    shortest = 2 ** float(expected.length.quantile(1 - _USUAL))
    longest = 2 ** float(expected.length.quantile(_USUAL))
    least_cosine = float(expected.cosine.quantile(1 - _USUAL))
    return LearnerMatch(
        ratio=2 ** float(likeness.length.median()),
        tensors={name: 2 ** float(value.median()) for name, value in likeness.tensors.items()},
        cosine=float(likeness.cosine.median()),
        clients=view.victims,
        finding=finding,
        expected=f"{shortest:.2g} to {longest:.2g} times, cosine from {least_cosine:.2f}",
    )


def _match_of_others(view: RoundView, generator: torch.Generator) -> LearnerMatch | str:
    """Compares clients of any kind with clients of random examples."""
    # Two draws of simulated clients: how alike these are says what may be expected of the recorded ones.
    draws = [simulated_updates(view, generator=generator) for _ in range(2)]
    if draws[0] is None or draws[1] is None:
        return "clients cannot be simulated, because the recording has no examples of the server's own (`auxiliary:`)"
    released = [as_released(view, draw, generator=generator) for draw in draws if draw is not None]
    recorded_tensors, first_tensors, second_tensors = flat_alike(view.deltas, *released)
    if not recorded_tensors:
        return "its updates have other shapes than the recorded ones"
    recorded = torch.cat(list(recorded_tensors.values()), dim=1)
    simulated = torch.cat(list(first_tensors.values()), dim=1)
    simulated_again = torch.cat(list(second_tensors.values()), dim=1)
    ratio = _ratio(simulated, recorded)
    mean_simulated = simulated.mean(0)
    cosine = float(cosine_similarity(mean_simulated, recorded.mean(0), dim=0))
    finding = ""
    if not 1 / _FACTOR <= ratio <= _FACTOR:
        times = times_in_words(-math.log2(ratio))
        finding = f"the updates are {times} than the learner makes them: check {_HYPER_PARAMETERS}"
    # A direction says something only where two simulated means agree about it.
    elif cosine < _OPPOSITE and float(cosine_similarity(mean_simulated, simulated_again.mean(0), dim=0)) > _ONE_WAY:
        finding = "the updates point against the simulated ones: record local minus global, not global minus local"
    tensors = {}
    for name, recorded_tensor in recorded_tensors.items():
        if bool(recorded_tensor.any()):
            tensors[name] = _ratio(first_tensors[name], recorded_tensor)
    return LearnerMatch(ratio, tensors, cosine, view.victims, finding)


def _ratio(simulated: Tensor, recorded: Tensor) -> float:
    return float(simulated.norm(dim=1).median() / recorded.norm(dim=1).median())
