"""Baselines that fit every recording of interactions."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.interactions.baselines import Chance as Chance
    from attacks.interactions.baselines import Popularity as Popularity

__all__ = exports(__name__)
