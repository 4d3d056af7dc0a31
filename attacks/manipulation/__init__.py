"""What a malicious server sends in place of real features."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.manipulation.base import Manipulation as Manipulation
    from attacks.manipulation.codebook import Codebook as Codebook
    from attacks.manipulation.direct import Fingerprint as Fingerprint
    from attacks.manipulation.direct import MarkedDocument as MarkedDocument
    from attacks.manipulation.direct import NoiseInjection as NoiseInjection
    from attacks.manipulation.direct import Permutation as Permutation
    from attacks.manipulation.targeted import SomeClients as SomeClients
    from attacks.manipulation.targeted import Targeted as Targeted

__all__ = exports(__name__)
