"""Secure aggregation as it is: the server receives sums of several clients' updates, and nothing else."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from defenses.base import Defense, Update
from defenses.local_dp import noise_of
from protocol.errors import InputError
from protocol.view import Release


class SecureSum(Defense):
    """Sums over aggregates of consecutive clients of a cohort; the global model learns what it would without.

    The first `targets` clients of an aggregate are those whom the server has set out to read: the recording holds the
    aggregate's sum once for each of them, and nothing of the others.

    Args:
        participants: clients in an aggregate.
        targets: clients of each aggregate whom the server reads.
        noise_scale: standard deviation of each participant's noise, as `LocalDP.noise_scale`; None for that of the
            local DP among the defences before this one.

    Raises:
        InputError: an argument is out of its range.
    """

    joint = True

    def __init__(self, *, participants: int, targets: int = 1, noise_scale: float | None = None) -> None:
        if not 1 <= targets <= participants or (noise_scale or 0) < 0:
            raise InputError(
                expected="SecureSum.targets from 1 to participants, and noise_scale of 0 or more",
                found=f"{targets} of {participants}, and {noise_scale or 0:g}",
                way_out="RAIFLE's table XI has one target and 10 to 1,000 participants.",
            )
        self.participants = participants
        self.targets = targets
        self.noise_scale = noise_scale

    def placed(self, before: Sequence[Defense]) -> None:
        """Takes the participants' noise from their local DP where it is not given."""
        if self.noise_scale is None:
            self.noise_scale = noise_of(before)

    def seen(self, update: Update) -> tuple[Update, Tensor | None]:
        """See `Defense.seen`.

        Raises:
            InputError: the cohort cannot be split into aggregates, or has row parameters.
        """
        clients = len(next(iter(update.deltas.values())))
        if update.rows or clients % self.participants:
            raise InputError(
                expected=f"cohorts of a multiple of {self.participants} clients whose whole update is sent",
                found=f"{clients} clients" + (f" and rows of {', '.join(update.rows)}" if update.rows else ""),
                way_out="Set clients_per_round to a multiple of SecureSum.participants; use FPDGD.",
            )
        sums = {
            name: value.reshape(-1, self.participants, *value.shape[1:]).sum(1).repeat_interleave(self.targets, 0)
            for name, value in update.deltas.items()
        }
        positions = torch.arange(clients).reshape(-1, self.participants)[:, : self.targets].flatten()
        sent, numbers = (None if value is None else value[positions] for value in (update.sent, update.clients))
        return dataclasses.replace(update, deltas=sums, sent=sent, clients=numbers), positions

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """See `Defense.releases`: the noise of the others."""
        others = (self.participants - 1) ** 0.5 * (self.noise_scale or 0.0)
        return (Release(noise_scale=others, parameters=parameters),)
