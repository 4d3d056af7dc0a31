"""Checks of the privacy that clients declare: are the clipping and the noise really there, and what do they hide?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds as CanaryBounds
    from fedleak.attacks.declared_privacy.canary_bounds import CoinGuess as CoinGuess
    from fedleak.attacks.declared_privacy.release_check import ReleaseCheck as ReleaseCheck
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "CanaryBounds": "fedleak.attacks.declared_privacy.canary_bounds",
            "CoinGuess": "fedleak.attacks.declared_privacy.canary_bounds",
            "ReleaseCheck": "fedleak.attacks.declared_privacy.release_check",
        },
    )
