"""The declared noise, in the client's own message."""

import math
from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.noise_tests import COARSE, least_noise, private_tensors, rounding
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import require

_TOGETHER = "all tensors together"
_FEW = 100
"""Numbers of a tensor below which its scale alone is not reported."""


class DeclaredNoise(Check):
    """Scale of the noise of each tensor, and of all together, over the declared one.

    Of the noise itself, if the guard gets the update before it; else of the message, whatever the update is: see
    `fedleak_guard.noise_tests`. The message alone does not show noise that is missing under an update that is itself
    as large as the noise in every tensor.
    """

    name = "declared-noise"
    text = "smallest scale of the noise of a tensor that its numbers allow, over the declared one"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "privacy.noise" if policy.privacy is None or policy.privacy.noise is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None or policy.privacy is None or policy.privacy.noise is None:
            return None
        privacy = policy.privacy
        declared = policy.privacy.noise
        noised = private_tensors(message, privacy)
        if message.before_noise is not None:
            noised = _noise(noised, private_tensors(message, privacy, before=True))
        parts = {name: value.ravel() for name, value in noised.items() if value.size}
        errors = rounding(message)
        outcomes = {}
        for name, value in parts.items():
            outcomes[name] = least_noise(value, declared, errors[name])
        # Together only those whose noise is not lost in the precision of the numbers; the others are findings.
        fine = [name for name in parts if errors[name] <= COARSE * declared]
        if len(fine) > 1:
            # Noise that is a little too small shows in many numbers, where no tensor alone has enough of them.
            together = np.concatenate([parts[name] for name in fine])
            parts[_TOGETHER] = together
            outcomes[_TOGETHER] = least_noise(together, declared, max(errors[name] for name in fine))
        # The scale of few numbers is mostly chance; a finding is reported of any number of them.
        ratios = [outcome.ratio for name, outcome in outcomes.items() if parts[name].size >= _FEW]
        faults = [f"{name[:80]!r} ({outcome.reason})" for name, outcome in outcomes.items() if outcome.reason]
        return Measurement(
            value=min(ratios, default=math.inf),
            found=bool(faults),
            sentence=f"less noise than declared in {len(faults)} tensors: {'; '.join(faults[:3])}",
        )


def _noise(sent: dict[str, Array], before: dict[str, Array]) -> dict[str, Array]:
    """The noise itself: what was sent less what it was before."""
    is_same = sent.keys() == before.keys() and all(sent[name].shape == before[name].shape for name in sent)
    require(is_same, "the same tensors before the noise as sent", "others", "Give the update before the noise, whole.")
    return {name: value - before[name] for name, value in sent.items()}
