"""What clients publicly do to their messages before sending: a clip, noise, fewer digits."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the clients publicly do to their deltas before sending.

    Attributes:
        clip: L2 norm to which the parameters are clipped, or None.
        noise_scale: standard deviation of the Gaussian noise on each number, 0 for none.
        parameters: names of the parameters that are clipped and noised together.
        own_devices: whether the server's own devices do it too.
        epsilon: epsilon of one send, as the clients declare it; None if they declare none.
        delta: its delta.
        neighbours: two data sets that epsilon makes hard to tell apart: ``replace``, a client's whole data and any
            other, whose clipped updates are up to 2 * `clip` apart; ``add``, with the client and without, up to `clip`.
        bits: mean number of bits that a number of the message can carry, by the count of possible messages: log2 of
            that count, less 64 for what all numbers have in common, over their number; None for any float.
        participants: number of clients whose updates the server gets as one sum. Above 1, the release is what the
            others add to a client's message: `noise_scale` is that of the sum of their noise.
    """

    clip: float | None = None
    noise_scale: float = 0.0
    parameters: tuple[str, ...] = ()
    own_devices: bool = True
    epsilon: float | None = None
    delta: float | None = None
    neighbours: Literal["replace", "add"] = "replace"
    bits: float | None = None
    participants: int = 1

    def clip_factors(self, squares: Mapping[str, Tensor]) -> Tensor | None:
        """Factors of at most 1 by which the release clips its parameters; None without a clip.

        Args:
            squares: squared L2 norm of each parameter before the clip, of any shape that they share, such as ``(B,)``;
                parameters without one do not count.
        """
        squares_of_clipped = [squares[name] for name in self.parameters if name in squares]
        if self.clip is None or not squares_of_clipped:
            return None
        # min(1, C / ||u||), with the norm over all parameters together; 1e-24 leaves an update of zeros as it is.
        norms = torch.stack(squares_of_clipped).sum(0).clamp(min=1e-24).sqrt()
        return (self.clip / norms).clamp(max=1)

    def described(self) -> dict[str, Any]:
        """The release in the manifest of a recording, without optional entries at their defaults."""
        description: dict[str, Any] = {
            "clip": self.clip,
            "noise_scale": self.noise_scale,
            "parameters": list(self.parameters),
        }
        # The first three fields stand above; the others came later, and manifests without them stay as they were.
        for optional in fields(self)[3:]:
            value = getattr(self, optional.name)
            if value != optional.default:
                description[optional.name] = value
        return description
