"""Tests of messages against a release: noise, its reuse, its order with the clip, and the clip itself."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc, ndtr
from torch import Tensor

from fedleak.attacks.declared_privacy import noise_tests
from fedleak.attacks.declared_privacy.findings import Findings
from fedleak.attacks.declared_privacy.missing_noise import MissingNoise, missing_noise
from fedleak.attacks.declared_privacy.noise_reuse import CLEAR, Messages, Pairs, SeenNoise, compared
from fedleak.attacks.declared_privacy.noise_tests import Array
from fedleak.core.view import View

CHECKS = ("noise scale", "energy", "law", "resolution", "numbers without noise", "reuse", "clip direction", "order")
"""Checks with p-values, which share the level."""
WHOLE = "all"
"""Name of the numbers of all parameters of a release together."""
_SAMPLE = 2**16
"""Numbers of a message, and of a parameter in all messages, whose law is tested."""
_PAIRS_OF_PARAMETERS = 30
"""Parameters up to which all pairs are compared; of more, neighbours."""
_AT_CLIP = 1e-5
"""Relative distance of a norm to the clip at which it counts as equal."""


@dataclass(frozen=True)
class Group:
    """Parameters that are clipped together and noised.

    Attributes:
        clip: largest norm of the update in them, of a sum that of the summed updates; infinite without a clip.
        scales: standard deviation of all declared noise by parameter.
        participants: number of clients whose updates are in a message; each is clipped.
    """

    clip: float
    scales: Mapping[str, float]
    participants: int = 1

    @property
    def bound(self) -> float:
        """Largest norm of the update in units of the noise; infinite if that is too small for a number."""
        least = min(self.scales.values())
        return self.clip / least if least else math.inf


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

    def __init__(self, group: Group, findings: Findings, messages: int) -> None:
        self.group, self.findings, self.messages = group, findings, messages
        self.conclusive = Conclusive()
        self._seen = SeenNoise(messages)

    def add_round(self, view: View, numbers: Tensor) -> None:
        """Tests the messages of a round, whose numbers in the recording are ``(V,)``."""
        own = {name: _standardised(view, name, scale) for name, scale in self.group.scales.items()}
        whole = torch.cat(list(own.values()), dim=1)
        self._scale(own, whole, numbers)
        self._law(own, whole, numbers)
        self._resolution(own, whole, numbers, view)
        bound = self.group.bound
        earlier = self._seen.add(whole, view.pseudonyms, numbers, round_number=view.round, bound=bound)
        for pairs in (*earlier, *self._inside(own, view, numbers)):
            self.findings.add("reuse", WHOLE, pairs.p, pairs.messages, pairs.correlation, total=pairs.total)
        self.conclusive.reuse |= math.sqrt(min(whole.shape[1], 2**14)) - bound > CLEAR or self.conclusive.free
        if math.isfinite(bound):
            self._clip(own, whole, numbers, view)

    def _scale(self, own: Mapping[str, Tensor], whole: Tensor, numbers: Tensor) -> None:
        bound, everyone, level = self.group.bound, numbers[None], self.findings.alpha
        alike = _alike(list(own.values()))
        if self.group.participants > 1:
            options: dict[str, Any] = {"participants": self.group.participants, "level": level}
            self.conclusive.missing.append((numbers.numpy(), missing_noise(own, whole, bound=bound, **options)))
        for name, x in {**own, WHOLE: whole}.items():
            if name == WHOLE and len(own) == 1:
                self.conclusive.scale[WHOLE] = self.conclusive.scale[next(iter(own))]
                continue
            one = noise_tests.scale(x, bound, level=level)
            # The numbers of all messages in a row: block by block, so that blocks stay within a message.
            row = _in_a_row(x)
            same = row.shape == x.shape  # one message of whole blocks
            pooled = one if same else noise_tests.scale(row, bound * math.sqrt(len(x)), level=level)
            for found, about in ((one, numbers), (pooled, everyone)):
                self.findings.add("noise scale", name, found.too_low, about, found.noise)
                # Larger noise is in all parameters alike, and in the median block; an update is not.
                excess = np.square(found.energy_ratio) - 1
                noise = alike & (np.square(found.bulk) - 1 > excess / 2)
                larger = np.where(noise, found.energy_ratio, np.nan)
                self.findings.add("energy", name, found.too_high, about, larger)
            if name == WHOLE or len(own) == 1:
                self.conclusive.ratios.append((numbers.numpy(), one.ratio))
            entry = (float(pooled.ratio[0]), float(pooled.low[0]), float(pooled.high[0]))
            self.conclusive.scale.setdefault(name, []).append(entry)
            if name == WHOLE or len(own) == 1:
                self.conclusive.free |= bool(pooled.free[0]) and not math.isnan(entry[0])

    def _law(self, own: Mapping[str, Tensor], whole: Tensor, numbers: Tensor) -> None:
        allowed = self.group.bound**2
        count = float((~whole.isnan()).sum(1).double().mean())
        if allowed <= 0.1 * count:
            self._add_law(WHOLE, noise_tests.law(_strided(whole, _SAMPLE), np.full(len(whole), allowed)), numbers)
            samples = {name: _strided(x, max(_SAMPLE // len(x), 256)).reshape(1, -1) for name, x in own.items()}
            for name, x in samples.items():
                self._add_law(name, noise_tests.law(x, np.array([allowed * len(whole)])), numbers[None])
            return
        quiet = noise_tests.quiet_half(whole).reshape(1, -1)
        if quiet.shape[1] < 512:
            return
        energy, inside = float(quiet.double().square().nansum()), float((~quiet.isnan()).sum())
        spread = 4 * math.sqrt(2 * inside)
        if abs(energy - inside) <= spread:  # noise alone; what hides within its fluctuation is allowed for
            self._add_law(WHOLE, noise_tests.law(_strided(quiet, 2**20), np.array([2 * spread])), numbers[None])

    def _add_law(self, name: str, law: noise_tests.Law, about: Tensor) -> None:
        self.findings.add("law", name, law.smirnov, about, law.distance)
        self.findings.add("law", name, law.anderson, about, law.distance)
        self.conclusive.law |= bool(law.conclusive.any())

    def _resolution(self, own: Mapping[str, Tensor], whole: Tensor, numbers: Tensor, view: View) -> None:
        if not view.rounded & own.keys():
            tied = noise_tests.grid(whole)
            self.findings.add("resolution", WHOLE, tied, numbers)
            self.conclusive.resolution |= bool((~np.isnan(tied)).any())
        for name, x in own.items():
            p, share = noise_tests.zeros(x)
            self.findings.add("numbers without noise", name, p, numbers, share)

    def _inside(self, own: Mapping[str, Tensor], view: View, numbers: Tensor) -> Iterator[Pairs]:
        """Comparisons of the parameters of each message, and of neighbouring rows and columns of each."""
        filled = {name: Messages.as_declared(x.nan_to_num(0.0), numbers) for name, x in own.items()}
        names = list(filled)
        reach = len(names) if len(names) <= _PAIRS_OF_PARAMETERS else 2
        for start, name in enumerate(names):
            messages = filled[name]
            width = messages.numbers.shape[1]
            for other in names[start + 1 : start + reach]:
                if min(width, filled[other].numbers.shape[1]) >= 32:
                    yield compared(messages, filled[other], bound=self.group.bound)
            for step in {1, view.deltas[name][0, 0].numel()} if view.deltas[name].dim() > 2 else {1}:
                if width >= 32 + step:
                    moved = dataclasses.replace(messages, numbers=messages.numbers[:, step : 2**14 + step])
                    yield compared(messages.first(width - step), moved, bound=self.group.bound)

    def _clip(self, own: Mapping[str, Tensor], whole: Tensor, numbers: Tensor, view: View) -> None:
        bound, count = self.group.bound, float((~whole.isnan()).sum(1).max())
        norms = torch.stack([(x.double().nan_to_num(0) * self.group.scales[n]).square().sum(1) for n, x in own.items()])
        equal = int(((norms.sum(0).sqrt() / self.group.clip - 1).abs() < _AT_CLIP).sum())
        chance = min(1.0, 2 * _AT_CLIP * bound)
        at_clip = np.array([bdtrc(equal - 1, len(whole), chance)])
        self.findings.add("order", WHOLE, at_clip, numbers[None], equal)
        along = _along_model(whole, view, self.group.scales)
        p = np.minimum(2 * ndtr(bound - along), 1)
        self.findings.add("clip direction", WHOLE, p, numbers, along / bound)
        self.conclusive.clip = tuple(  # type: ignore[assignment]
            min(before, _visible(bound, count, clients, self.findings, self.messages))
            for before, clients in zip(self.conclusive.clip, (1, len(whole)), strict=True)
        )


def _visible(bound: float, count: float, clients: int, findings: Findings, messages: int) -> float:
    """Norm, in clips, that the energy of `clients` messages reveals in nine of ten cases."""
    tests = 2 * messages * max(len(findings.parameters("energy")), 1)
    x = math.log(tests * len(findings.checks) / findings.alpha)
    allowed, numbers = clients * bound**2, clients * count
    excess = 2 * math.sqrt((numbers + 2 * allowed) * x) + 2 * x + 1.3 * math.sqrt(2 * numbers)
    return math.sqrt((allowed + excess) / allowed)


def _alike(own: Sequence[Tensor]) -> bool:
    """Whether the numbers of several parameters have one scale."""
    squares = [x.double().square() for x in own]
    energy = np.array([float(square.nansum()) for square in squares])
    count = np.array([float((~square.isnan()).sum()) for square in squares])
    relative = energy / count / (energy.sum() / count.sum()) - 1
    return bool(chdtrc(max(len(own) - 1, 1), (np.square(relative) * count / 2).sum()) > 1e-3)


def _standardised(view: View, name: str, scale: float) -> Tensor:
    """``(V, n)`` numbers of a parameter in units of the declared noise, NaN where padded."""
    delta = view.deltas[name] / scale
    if name in view.row_parameters:
        delta = delta.masked_fill(~view.served_mask.reshape(*delta.shape[:2], *[1] * (delta.dim() - 2)), torch.nan)
    return delta.flatten(1)


def _model_part(view: View, name: str) -> Tensor:
    """``(V, n)`` values of a parameter in the global model, in the places of its deltas; 0 where it is unknown."""
    value = view.model.get(name)
    if value is None:
        delta = view.deltas[name].flatten(1)
        return delta.new_zeros(1, delta.shape[1]).expand(view.victims, -1)
    if name not in view.row_parameters:
        return value.flatten()[None].expand(view.victims, -1)
    rows = value[view.served_items.clamp(min=0)]
    return (rows * view.served_mask.reshape(*rows.shape[:2], *[1] * (rows.dim() - 2))).flatten(1)


def _along_model(whole: Tensor, view: View, scales: Mapping[str, float]) -> Array:
    """``(V,)`` length of messages ``(V, n)`` along the global model; NaN where that is zero or unknown."""
    if view.model.keys().isdisjoint(scales):
        return np.full(len(whole), np.nan)
    towards = torch.cat([_model_part(view, name) / scale for name, scale in scales.items()], dim=1).double()
    length = torch.linalg.vector_norm(towards, dim=1)
    along = ((whole.nan_to_num(0).double() * towards).sum(1) / length.clamp(min=1e-30)).abs()
    return np.where(length > 0, along.numpy(), np.nan)


def _in_a_row(x: Tensor) -> Tensor:
    """``(1, K * m)`` messages after one another, each cut to whole blocks if it has any."""
    width = x.shape[1] // noise_tests.BLOCK * noise_tests.BLOCK
    return (x[:, :width] if width else x).reshape(1, -1)


def _strided(x: Tensor, size: int) -> Tensor:
    """At most about `size` numbers of each row, evenly spaced."""
    return x[:, :: max(-(-x.shape[1] // size), 1)]
