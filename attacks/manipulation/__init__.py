"""What a malicious server sends in place of real features."""

from attacks.manipulation.base import Manipulation
from attacks.manipulation.codebook import Codebook
from attacks.manipulation.direct import Fingerprint, MarkedDocument, NoiseInjection, Permutation
from attacks.manipulation.targeted import SomeClients, Targeted

__all__ = [
    "Codebook",
    "Fingerprint",
    "Manipulation",
    "MarkedDocument",
    "NoiseInjection",
    "Permutation",
    "SomeClients",
    "Targeted",
]
