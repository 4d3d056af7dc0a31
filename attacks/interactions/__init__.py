"""Baselines that fit every recording of interactions."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.interactions.baselines import Chance as Chance
    from fedleak.attacks.interactions.baselines import Popularity as Popularity

__all__ = exports(__name__)
