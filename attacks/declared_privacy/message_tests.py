"""Tests of messages against a release: noise, its reuse, its order with the clip, and the clip itself."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc, ndtr
from torch import Tensor

from fedleak.attacks.declared_privacy import noise_tests
from fedleak.attacks.declared_privacy.findings import Findings
from fedleak.attacks.declared_privacy.message_numbers import along_model, in_a_row, standardised, strided
from fedleak.attacks.declared_privacy.missing_noise import MissingNoise, missing_noise
from fedleak.attacks.declared_privacy.noise_reuse import CLEAR, ComparedMessages, Pairs, SeenNoise, compared
from fedleak.attacks.declared_privacy.noise_tests import Array
from fedleak.attacks.declared_privacy.noised_groups import NoisedGroup
from fedleak.core.view import View

CHECKS = ("noise scale", "energy", "law", "resolution", "numbers without noise", "reuse", "clip direction", "order")
"""Checks with p-values, which share the level."""
WHOLE = "all"
"""Name of the numbers of all parameters of a release together."""
_SAMPLE = 2**16
"""Numbers of a message, and of a parameter in all messages, whose law is tested."""
_PAIRS_OF_PARAMETERS = 30
"""Parameters up to which all pairs are compared; of more, neighbours."""
_FEWEST_NUMBERS = 32
"""Numbers of a parameter from which on it is compared: the same noise in fewer gives no small p-value."""
_ALIKE = 1e-3
"""p-value of equal scales above which several parameters count as alike."""
_AT_CLIP = 1e-5
"""Relative distance of a norm to the clip at which it counts as equal."""


@dataclass
class Conclusive:
    """Whether any test of a kind could have found a fault.

    Attributes:
        scale: by parameter, ratio and interval of each part of the messages.
        ratios: numbers of messages, and the ratio of each.
        law: whether noise of another law would have been found.
        resolution: whether rounded noise would have been found.
        reuse: whether noise used twice would have been found.
        clip: smallest norm, in clips, that would have been found, of one client and if all clients of a round have it.
        free: whether the scale was taken from blocks without visible signal.
        missing: of sums, numbers of messages, and the participants without noise in each.
    """

    scale: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    ratios: list[tuple[NDArray[np.int64], Array]] = field(default_factory=list)
    law: bool = False
    resolution: bool = False
    reuse: bool = False
    clip: tuple[float, float] = (math.inf, math.inf)
    free: bool = False
    missing: list[tuple[NDArray[np.int64], MissingNoise]] = field(default_factory=list)


class MessageTests:
    """Tests of the messages of all rounds against one group of parameters.

    Args:
        group: the parameters, their clip and noise.
        findings: where the p-values go.
        messages: number of messages of the recording.
    """

    def __init__(self, group: NoisedGroup, findings: Findings, messages: int) -> None:
        self.group = group
        self.findings = findings
        self.messages = messages
        self.conclusive = Conclusive()
        self._earlier = SeenNoise(messages)

    def add_round(self, view: View, numbers: Tensor) -> None:
        """Tests the messages of a round, whose numbers in the recording are ``(V,)``."""
        by_parameter = {name: standardised(view, name, scale) for name, scale in self.group.scales.items()}
        together = torch.cat(list(by_parameter.values()), dim=1)
        self._scale(by_parameter, together, numbers)
        self._law(by_parameter, together, numbers)
        self._resolution(by_parameter, together, numbers, view)
        bound = self.group.bound
        earlier = self._earlier.add(together, view.pseudonyms, numbers, round_number=view.round, bound=bound)
        for pairs in (*earlier, *self._inside(by_parameter, view, numbers)):
            self.findings.add("reuse", WHOLE, pairs.p, pairs.messages, pairs.correlation, total=pairs.total)
        # The same noise has a product of sqrt(n), of the 2^14 numbers that are compared at most.
        signal = math.sqrt(min(together.shape[1], 2**14))
        self.conclusive.reuse |= signal - bound > CLEAR or self.conclusive.free
        if math.isfinite(bound):
            self._clip(by_parameter, together, numbers, view)

    def _scale(self, by_parameter: Mapping[str, Tensor], together: Tensor, numbers: Tensor) -> None:
        """Scale of the noise, of each parameter and of all together: message by message, and of all messages pooled."""
        bound = self.group.bound
        level = self.findings.alpha
        is_alike = _alike(list(by_parameter.values()))
        if self.group.participants > 1:
            missing = missing_noise(
                by_parameter,
                together,
                bound=bound,
                participants=self.group.participants,
                level=level,
            )
            self.conclusive.missing.append((numbers.numpy(), missing))
        has_one_parameter = len(by_parameter) == 1
        for name, x in {**by_parameter, WHOLE: together}.items():
            if name == WHOLE and has_one_parameter:
                self.conclusive.scale[WHOLE] = self.conclusive.scale[next(iter(by_parameter))]
                continue
            single = noise_tests.scale(x, bound, level=level)
            # The numbers of all messages in a row: block by block, so that blocks stay within a message.
            row = in_a_row(x)
            pooled = single
            if row.shape != x.shape:  # else one message of whole blocks
                # The updates of M messages together have a norm of sqrt(M) clips at most.
                pooled = noise_tests.scale(row, bound * math.sqrt(len(x)), level=level)
            self._add_scale(name, single, numbers, is_alike=is_alike)
            self._add_scale(name, pooled, numbers[None], is_alike=is_alike)
            interval = (float(pooled.ratio[0]), float(pooled.low[0]), float(pooled.high[0]))
            self.conclusive.scale.setdefault(name, []).append(interval)
            if name == WHOLE or has_one_parameter:
                self.conclusive.ratios.append((numbers.numpy(), single.ratio))
                self.conclusive.free |= bool(pooled.free[0]) and not math.isnan(interval[0])

    def _add_scale(self, name: str, scale: noise_tests.Scale, about: Tensor, *, is_alike: bool) -> None:
        """Adds p-values of too little noise, and of more energy than noise and a clipped update have."""
        self.findings.add("noise scale", name, scale.too_low, about, scale.noise)
        # Larger noise is in all parameters alike, and in the median block; an update is not.
        excess = np.square(scale.energy_ratio) - 1
        is_noise = is_alike & (np.square(scale.bulk) - 1 > excess / 2)
        larger = np.where(is_noise, scale.energy_ratio, np.nan)
        self.findings.add("energy", name, scale.too_high, about, larger)

    def _law(self, by_parameter: Mapping[str, Tensor], together: Tensor, numbers: Tensor) -> None:
        """Law of the noise: of each message and parameter where updates are small, else of the quieter blocks."""
        allowed = self.group.bound**2
        messages = len(together)
        count = float((~together.isnan()).sum(1).double().mean())
        if allowed <= 0.1 * count:
            sample = strided(together, _SAMPLE)
            self._add_law(WHOLE, noise_tests.law(sample, np.full(messages, allowed)), numbers)
            # A parameter in all messages together, each of which has an update of its own.
            samples = {name: strided(x, max(_SAMPLE // len(x), 256)) for name, x in by_parameter.items()}
            for name, x in samples.items():
                law = noise_tests.law(x.reshape(1, -1), np.array([allowed * messages]))
                self._add_law(name, law, numbers[None])
            return
        quiet = noise_tests.quiet_half(together).reshape(1, -1)
        if quiet.shape[1] < 512:
            return
        energy = float(quiet.double().square().nansum())
        quiet_count = float((~quiet.isnan()).sum())
        # Four standard deviations of the energy of noise alone, whose variance is 2 for each number.
        spread = 4 * math.sqrt(2 * quiet_count)
        if abs(energy - quiet_count) <= spread:  # noise alone; what hides within its fluctuation is allowed for
            law = noise_tests.law(strided(quiet, 2**20), np.array([2 * spread]))
            self._add_law(WHOLE, law, numbers[None])

    def _add_law(self, name: str, law: noise_tests.NormalityTest, about: Tensor) -> None:
        self.findings.add("law", name, law.smirnov, about, law.distance)
        self.findings.add("law", name, law.anderson, about, law.distance)
        self.conclusive.law |= bool(law.conclusive.any())

    def _resolution(self, by_parameter: Mapping[str, Tensor], together: Tensor, numbers: Tensor, view: View) -> None:
        """Numbers on a grid, unless the recording rounded them itself, and numbers that are exactly zero."""
        if not view.rounded & by_parameter.keys():
            tied = noise_tests.grid(together)
            self.findings.add("resolution", WHOLE, tied, numbers)
            self.conclusive.resolution |= bool((~np.isnan(tied)).any())
        for name, x in by_parameter.items():
            p, share = noise_tests.zeros(x)
            self.findings.add("numbers without noise", name, p, numbers, share)

    def _inside(self, by_parameter: Mapping[str, Tensor], view: View, numbers: Tensor) -> Iterator[Pairs]:
        """Comparisons of the parameters of each message, and of neighbouring rows and columns of each."""
        filled = {}
        for name, x in by_parameter.items():
            filled[name] = ComparedMessages.as_declared(x.nan_to_num(0.0), numbers)
        names = list(filled)
        reach = 2
        if len(names) <= _PAIRS_OF_PARAMETERS:
            reach = len(names)
        for start, name in enumerate(names):
            messages = filled[name]
            width = messages.numbers.shape[1]
            for second in names[start + 1 : start + reach]:
                if min(width, filled[second].numbers.shape[1]) >= _FEWEST_NUMBERS:
                    yield compared(messages, filled[second], bound=self.group.bound)
            # A parameter against itself, moved by a column, and by a row where it is a matrix.
            steps = {1}
            if view.deltas[name].dim() > 2:
                steps.add(view.deltas[name][0, 0].numel())
            for step in steps:
                if width >= _FEWEST_NUMBERS + step:
                    moved = dataclasses.replace(messages, numbers=messages.numbers[:, step : 2**14 + step])
                    yield compared(messages.first(width - step), moved, bound=self.group.bound)

    def _clip(self, by_parameter: Mapping[str, Tensor], together: Tensor, numbers: Tensor, view: View) -> None:
        """Order of clip and noise, messages along the global model, and norms of updates that would be found."""
        bound = self.group.bound
        # Messages whose norm equals the clip. The norm of noise is about normal with a deviation of 1 / sqrt(2), so
        # its density is below 1, and 2 _AT_CLIP bound is more than the probability of such a norm.
        squares = []
        for name, x in by_parameter.items():
            squares.append((x.double().nan_to_num(0) * self.group.scales[name]).square().sum(1))
        norms = torch.stack(squares).sum(0).sqrt()
        equal = int(((norms / self.group.clip - 1).abs() < _AT_CLIP).sum())
        chance = min(1.0, 2 * _AT_CLIP * bound)
        at_clip = np.array([bdtrc(equal - 1, len(together), chance)])
        self.findings.add("order", WHOLE, at_clip, numbers[None], equal)
        # Noise along the model is standard normal, and a clipped update adds the bound at most.
        along = along_model(together, view, self.group.scales)
        p = np.minimum(2 * ndtr(bound - along), 1)
        self.findings.add("clip direction", WHOLE, p, numbers, along / bound)
        # The smallest norm that the energy of one message, or of all messages of this round, would reveal.
        count = float((~together.isnan()).sum(1).max())
        smallest_of_one, smallest_of_all = self.conclusive.clip
        of_one = _visible(bound, count, 1, self.findings, self.messages)
        of_all = _visible(bound, count, len(together), self.findings, self.messages)
        self.conclusive.clip = (min(smallest_of_one, of_one), min(smallest_of_all, of_all))


def _visible(bound: float, count: float, clients: int, findings: Findings, messages: int) -> float:
    """Norm, in clips, that the energy of `clients` messages reveals in nine of ten cases."""
    tests = 2 * messages * max(len(findings.parameters("energy")), 1)
    # The bound of `noise_tests.upper_tail` at the level of one test, n + L + 2 sqrt((n + 2 L) t) + 2 t, and 1.3
    # standard deviations of the noise's energy, below which it is in one of ten cases.
    t = math.log(tests * len(findings.checks) / findings.alpha)
    allowed = clients * bound**2
    numbers = clients * count
    excess = 2 * math.sqrt((numbers + 2 * allowed) * t) + 2 * t + 1.3 * math.sqrt(2 * numbers)
    return math.sqrt((allowed + excess) / allowed)


def _alike(parameters: Sequence[Tensor]) -> bool:
    """Whether the numbers of several parameters have one scale."""
    squares = [x.double().square() for x in parameters]
    energy = np.array([float(square.nansum()) for square in squares])
    count = np.array([float((~square.isnan()).sum()) for square in squares])
    # The mean square of n normal numbers has a relative variance of 2 / n: a chi-square test of equal ones.
    relative = energy / count / (energy.sum() / count.sum()) - 1
    statistic = (np.square(relative) * count / 2).sum()
    return bool(chdtrc(max(len(parameters) - 1, 1), statistic) > _ALIKE)
