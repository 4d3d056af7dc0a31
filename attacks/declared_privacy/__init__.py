"""Attacks on what clients declare of their privacy: is the promised noise there, and what does it hide?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.declared_privacy.canary_bounds import CanaryBounds as CanaryBounds
    from attacks.declared_privacy.canary_bounds import CoinGuess as CoinGuess

__all__ = exports(__name__)
