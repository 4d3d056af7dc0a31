"""Secure aggregation: the server sees sums over participants only."""

import dataclasses
from collections.abc import Callable, Sequence

import torch

from defenses.base import Defense, Update
from defenses.local_dp import noise_of
from protocol.errors import InputError
from protocol.view import Release


class SecureAggregation(Defense):
    """The sum that a server receives when it has made sure that all participants but one send nothing of their own.

    Features that are zero for everybody but the target give a zero update for everybody but the target (fingerprinting,
    RAIFLE, section VII.B); what remains of the others in the sum is the noise of their local DP:
    ``update + N(0, (n - 1) sigma^2)``, beside the target's own noise, which `LocalDP` adds. Each client of the cohort
    is the target of an aggregate of its own.

    Args:
        participants: clients in an aggregate, the target included.
        noise_scale: standard deviation of each participant's noise, as `LocalDP.noise_scale`; None for that of the
            local DP among the defences before this one.

    Raises:
        InputError: an argument is out of its range.
    """

    def __init__(self, *, participants: int, noise_scale: float | None = None) -> None:
        if participants < 1 or (noise_scale or 0) < 0:
            raise InputError(
                expected="SecureAggregation.participants of at least 1 and noise_scale of 0 or more",
                found=f"{participants} and {noise_scale or 0:g}",
                way_out="RAIFLE's table XI has 10 to 1,000 participants.",
            )
        self.participants = participants
        self.noise_scale = noise_scale

    def placed(self, before: Sequence[Defense]) -> None:
        """Takes the participants' noise from their local DP where it is not given."""
        if self.noise_scale is None:
            self.noise_scale = noise_of(before)

    @property
    def others_scale(self) -> float:
        """Standard deviation of the sum of the others' noise."""
        return float((self.participants - 1) ** 0.5 * (self.noise_scale or 0.0))

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        if update.rows:
            raise InputError(
                expected="an update without row parameters under SecureAggregation",
                found=", ".join(update.rows),
                way_out="Only learners whose whole update is sent can be aggregated here, e.g. FPDGD.",
            )
        if not self.others_scale:
            return update
        deltas = {name: value.clone() for name, value in update.deltas.items()}
        for value in deltas.values():
            for client, own in enumerate(value):
                own += self.others_scale * torch.randn(own.shape, generator=generators(client)).to(own)
        return dataclasses.replace(update, deltas=deltas)

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        return (Release(noise_scale=self.others_scale, parameters=parameters),)
