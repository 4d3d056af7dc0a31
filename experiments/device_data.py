"""Data sets whose users have an anonymous and a known device, by name, and what the anonymous ones do to hide."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from datamodules.blog import Blog
from datamodules.mitigation import Mitigation
from datamodules.open_images import OpenImages
from datamodules.open_world import OpenWorld
from datamodules.owned import OwnedDataModule
from datamodules.pipa import PIPA
from datamodules.posts import UserFilter
from datamodules.priors import Devices
from datamodules.profiles import Profile
from datamodules.sent140 import Sentiment140
from datamodules.synthetic_posts import SyntheticPosts
from datamodules.text_examples import TextOptions
from datamodules.yelp import Yelp
from defenses.base import Defense
from defenses.device_noise import DeviceNoise
from protocol.errors import InputError

_KINDS: tuple[type[OwnedDataModule], ...] = (Blog, Yelp, Sentiment140, OpenImages, PIPA, SyntheticPosts)
DEVICE_DATA: dict[str, type[OwnedDataModule]] = {kind.name: kind for kind in _KINDS}


@dataclass(frozen=True, kw_only=True)
class Mitigated:
    """What the anonymous devices do to hide (section 7.1).

    Attributes:
        kind: ``noise``, or a kind of `datamodules.mitigation.Mitigation`.
        amount: variance of the noise, or alpha.
        modes: see `Mitigation`.
    """

    kind: Literal["noise", "bkg-repl", "rand-aug", "mm-aug"]
    amount: float
    modes: int = 300

    def __post_init__(self) -> None:
        """Refuses what either part refuses."""
        if self.kind == "noise":
            DeviceNoise(variance=self.amount)
        self.in_data()

    def in_data(self) -> Mitigation | None:
        """What becomes of the devices' examples."""
        if self.kind == "noise":
            return None
        return Mitigation(kind=self.kind, amount=self.amount, modes=self.modes)

    def defenses(self, source: OwnedDataModule) -> list[Defense]:
        """What becomes of what they send."""
        if self.kind != "noise":
            return []
        anonymous = (~source.client_known).nonzero().flatten().tolist()
        return [DeviceNoise(variance=self.amount, clients=anonymous)]


def make_devices(
    data: str, options: Mapping[str, Any], *, root: str | None, seed: int, **arguments: Any
) -> OwnedDataModule:
    """Builds a data set from a configuration.

    Args:
        data: its name.
        options: of its constructor; ``users``, ``text`` and ``devices`` are mappings.
        root: folder of the data sets.
        seed: seed of the draws.
        arguments: further ones of the constructor.

    Raises:
        InputError: an option is unknown or impossible.
    """
    made = dict(options)
    try:
        for name, kind in (("users", UserFilter), ("text", TextOptions)):
            if name in made:
                made[name] = kind(**made[name])
        if "devices" in made:
            made["devices"] = _devices(made["devices"])
        return DEVICE_DATA[data](root=root, seed=seed, **made, **arguments)
    except TypeError as error:
        raise InputError(
            expected=f"options that {data} takes", found=str(error), way_out="Fix `sources` in the table."
        ) from None


def _devices(options: Mapping[str, Any]) -> Devices:
    made = dict(options)
    if made.get("world") is not None:
        made["world"] = OpenWorld(**made["world"])
    made["profiles"] = [Profile(**profile) for profile in made.get("profiles", ())]
    return Devices(**made)
