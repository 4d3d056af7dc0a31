"""Checks of the privacy that clients declare: are the clipping and the noise really there, and what do they hide?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds as CanaryBounds
    from fedleak.attacks.declared_privacy.canary_bounds import CoinGuess as CoinGuess
    from fedleak.attacks.declared_privacy.release_check import ReleaseCheck as ReleaseCheck

__all__ = exports(__name__)
