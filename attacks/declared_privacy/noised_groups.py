"""Groups of parameters that are clipped together and noised, by the releases that clients declare."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedleak.core.view import View


@dataclass(frozen=True)
class NoisedGroup:
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


def noised_groups(view: View) -> tuple[dict[tuple[str, ...], NoisedGroup], set[str]]:
    """Parameters that are noised, by the release that clips them, and those that are clipped after the noise."""
    scales: dict[int | None, dict[str, float]] = {}
    participants: dict[int | None, int] = {}
    misread = set()
    for name in view.deltas:
        releases = [(i, release) for i, release in enumerate(view.releases) if name in release.parameters]
        noisy = [i for i, release in releases if release.noise_scale > 0]
        clipped = [i for i, release in releases if release.clip is not None]
        if not noisy:
            continue
        # Releases are in the order in which a client applies them.
        if clipped and max(clipped) > min(noisy):
            misread.add(name)
            continue
        # Of several clips, the smallest one bounds the update.
        tightest = min(clipped, key=lambda i: view.releases[i].clip or math.inf, default=None)
        summed = max(release.participants for _, release in releases)
        scales.setdefault(tightest, {})[name] = view.noise_scale(name)
        participants[tightest] = max(summed, participants.get(tightest, 1))
    groups = {}
    for tightest, scales_of_group in scales.items():
        clip = math.inf
        if tightest is not None:
            clip = view.releases[tightest].clip or math.inf
        count = participants[tightest]
        # A sum of updates has at most the norm of all clips together.
        groups[tuple(scales_of_group)] = NoisedGroup(clip=clip * count, scales=scales_of_group, participants=count)
    return groups, misread
