"""Local differential privacy: a client clips its update and adds Gaussian noise before it sends it."""

import dataclasses
import logging
import math
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

import torch
from diffprivlib.mechanisms import Gaussian, GaussianAnalytic
from dp_accounting import get_sigma_gaussian
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.release import Release
from fedleak.defenses.base import Defense, Update, per_client

_LARGEST_EPSILON = 700.0
"""diffprivlib computes ``exp(epsilon)`` in float64, which overflows at 709 and then silently gives a wrong scale."""

_SLACK = 1.02
"""Largest accepted ratio of a published scale to the smallest valid one."""
_ROUNDING = 1e-6
"""Part of the clip by which clipped norms stay below it: the product in float32 is off by less."""

_logger = logging.getLogger(__name__)


class LocalDP(Defense):
    """Local differential privacy by clipping each client's joint update and adding Gaussian noise to it.

    In this order: (1) the L2 norm over all chosen parameters together is clipped to `clip`; an update with inf or NaN
    is replaced by zeros, because sending it would reveal that the client diverged; (2) independent noise N(0, sigma^2)
    is added to every number, including rows that the client did not change, with sigma from `gaussian_scale`. One send
    is then (epsilon, delta)-private; `fedleak.callbacks.privacy_budget` composes the sends.

    Assumptions: example counts are public, as are the rows of a table that a client trains if the server served them
    (items). If the rows are the client's own (words), it sends the whole table with noise in every row, so that they
    stay hidden. With `parameters`, the guarantee covers *only* the named parameters.

    Args:
        clip: L2 norm of the joint update, > 0.
        epsilon: privacy of one send, > 0; ``inf`` disables the defence, including clipping, as in RAIFLE's tables.
        delta: probability with which the guarantee may fail, in (0, 1).
        sensitivity: L2 distance of two clients' clipped updates that the noise must hide; by default the maximum, ``2 *
            clip``.
        parameters: glob patterns of the parameters that are clipped together and noised; all by default.

    References:
        [Pham25], section VII.A. The mechanism is that of [Dwork14], and [Balle18a].
    """

    def __init__(
        self,
        *,
        clip: float,
        epsilon: float | Literal["inf"],
        delta: float,
        sensitivity: float | None = None,
        parameters: list[str] | None = None,
    ) -> None:
        self.clip = _positive("clip", clip)
        self.epsilon = _positive("epsilon", float(epsilon))
        way_out = "Give a number well below one over the number of clients, e.g. 1e-8."
        require(0 < delta < 1, "LocalDP.delta between 0 and 1, both excluded", f"{delta:g}", way_out)
        self.delta = delta
        self.sensitivity = 2 * clip if sensitivity is None else _positive("sensitivity", sensitivity)
        require(parameters != [], "LocalDP.parameters", "an empty list", "Leave it out for all.")
        self.parameters = parameters
        self.noise_scale = gaussian_scale(epsilon=self.epsilon, delta=delta, sensitivity=self.sensitivity)
        if self.active and self.sensitivity < 2 * clip:
            text = "local DP hides a distance of %g, but two updates of norm %g can be %g apart: epsilon may be larger"
            _logger.warning(text, self.sensitivity, clip, 2 * clip)
        if parameters is not None and self.active:
            _logger.warning("local DP covers only the parameters %s; nothing else is protected", parameters)

    @property
    def active(self) -> bool:
        """Whether epsilon is finite."""
        return math.isfinite(self.epsilon)

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """Clips and noises; a client's noise depends on its generator alone, not on the padding of others."""
        if not self.active:
            return update
        names = self.covered(tuple(update.deltas))
        noisy = [name for name in names if update.background_scale.get(name, 0.0) > 0]
        if noisy:
            raise InputError(
                expected="LocalDP to be the only defence that adds noise to a row parameter",
                found=f"{', '.join(noisy)}: noised before, so that the norm of the whole update is unknown",
                way_out="Keep one LocalDP, or give the two disjoint `parameters`.",
            )
        # (1) One factor for all parameters together.
        factors = clip_factors({name: update.deltas[name] for name in names}, self.clip)
        deltas = dict(update.deltas)
        background_scale = dict(update.background_scale)
        for name in names:
            factor = per_client(factors, deltas[name])
            # A diverged update has a factor of 0, and 0 times infinity is NaN.
            clipped = torch.where(factor > 0, deltas[name] * factor, 0)
            # (2) Noise; that of rows outside the update is drawn later, see `Update.background_scale`.
            mask = None
            if name in update.rows:
                mask = update.rows[name] >= 0
                background_scale[name] = self.noise_scale
            deltas[name] = _add_noise(clipped, self.noise_scale, mask, generators)
        return dataclasses.replace(update, deltas=deltas, background_scale=background_scale)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        if not self.active:
            return ()
        release = Release(
            clip=self.clip,
            noise_scale=self.noise_scale,
            parameters=self.covered(parameters),
            epsilon=self.epsilon,
            delta=self.delta,
        )
        return (release,)

    def noises_whole(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        return self.covered(parameters) if self.active else ()

    def covered(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `parameters` that are clipped and noised."""
        if self.parameters is None:
            return parameters
        for pattern in self.parameters:
            if not any(fnmatchcase(name, pattern) for name in parameters):
                raise InputError(
                    expected=f"LocalDP.parameters to match some of {', '.join(parameters)}",
                    found=f"pattern {pattern!r}, which matches none",
                    way_out="Correct the pattern, or leave `parameters` out to protect all of them.",
                )
        covered = []
        for name in parameters:
            if any(fnmatchcase(name, pattern) for pattern in self.parameters):
                covered.append(name)
        return tuple(covered)


def gaussian_scale(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Standard deviation of the Gaussian mechanism; 0 for an infinite epsilon.

    diffprivlib calibrates it, as in RAIFLE's published code: the analytic mechanism (Balle and Wang 2018) above epsilon
    1, the classical one (Dwork and Roth 2014, theorem A.1; 20 to 60 % more noise than needed) at or below. The analytic
    calibration suffers from cancellation: its scale is up to 4 % too small between epsilon 13 and 30 for a delta of
    1e-5 or 1e-8, and a third of what is needed or less for a delta of 1e-100. If the scale is below the smallest one
    that satisfies Balle and Wang's theorem 8 or, above epsilon 1, more than 2 % larger, that smallest one is used,
    which dp-accounting computes in logarithms.

    Raises:
        InputError: epsilon is finite and too large for the calibration, or the sensitivity too large for a finite
            scale.
    """
    if math.isinf(epsilon):
        return 0.0
    if epsilon > _LARGEST_EPSILON:
        raise InputError(
            expected=f"epsilon up to {_LARGEST_EPSILON:g}, or inf",
            found=f"{epsilon:g}, for which the calibration overflows",
            way_out="Give inf for no noise; a finite epsilon of this size guarantees nothing.",
        )
    is_analytic = epsilon > 1
    mechanism = GaussianAnalytic if is_analytic else Gaussian
    published = float(mechanism(epsilon=epsilon, delta=delta, sensitivity=sensitivity)._scale)
    # The root is accurate to about 12 digits; slightly more noise is safe.
    least = float(get_sigma_gaussian(epsilon, delta)) * sensitivity * (1 + 1e-9)
    # The classical mechanism has more noise than needed by its formula, so nothing bounds it.
    most = least * _SLACK if is_analytic else sys.float_info.max
    scale = published if least <= published <= most else least
    if not math.isfinite(scale):
        raise InputError(
            expected="a sensitivity whose noise is finite",
            found=f"{sensitivity:g} with epsilon {epsilon:g} and delta {delta:g}",
            way_out="Give a smaller LocalDP.clip, or epsilon: inf for no noise.",
        )
    return scale


def clip_factors(deltas: Mapping[str, Tensor], clip: float) -> Tensor:
    """``(C,)`` factors in [0, 1] that clip the joint L2 norm of ``deltas (C, ...)``; 0 if one is inf or NaN."""
    squares = {}
    for name, delta in deltas.items():
        squares[name] = delta.double().flatten(1).square().sum(1)
    # Slightly below the norm: rounding the product to float32 must not exceed the bound.
    factors = Release(clip=clip * (1 - _ROUNDING), parameters=tuple(squares)).clip_factors(squares)
    assert factors is not None
    is_finite = torch.stack(list(squares.values())).sum(0).isfinite()
    return factors.where(is_finite, 0.0)


def _add_noise(
    clipped: Tensor, scale: float, mask: Tensor | None, generators: Callable[[int], torch.Generator]
) -> Tensor:
    """Adds each client's noise to ``clipped (C, ...)``; with `mask` ``(C, R)``, to its real rows only."""
    for client, delta in enumerate(clipped):
        rows = delta if mask is None else delta[mask[client]]
        draw = torch.randn(rows.shape, generator=generators(client), dtype=torch.float32)
        noisy = rows + scale * draw.to(rows)
        if mask is None:
            clipped[client] = noisy
        else:
            delta[mask[client]] = noisy
    return clipped


def _positive(name: str, value: float) -> float:
    require(value > 0, f"LocalDP.{name} greater than 0", f"{value:g}", "For no noise, give epsilon: inf.")
    return value
