"""Baselines that fit every recording of interactions."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.interactions.baselines import Chance as Chance
    from fedleak.attacks.interactions.baselines import Popularity as Popularity
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Chance": "fedleak.attacks.interactions.baselines",
            "Popularity": "fedleak.attacks.interactions.baselines",
        },
    )
