"""Attacks on linkability: which updates of different rounds come from the same client?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.linkability.links import LinkCounts as LinkCounts
    from fedleak.attacks.linkability.similarity import Linkability as Linkability
    from fedleak.attacks.linkability.similarity import PlainCosine as PlainCosine

__all__ = exports(__name__)
