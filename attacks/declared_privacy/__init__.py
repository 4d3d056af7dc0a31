"""Checks of the privacy that clients declare: are the clipping and the noise really there?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.declared_privacy.release_check import ReleaseCheck as ReleaseCheck

__all__ = exports(__name__)
