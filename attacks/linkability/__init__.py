"""Attacks on linkability: which updates of different rounds come from the same client?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.linkability.links import LinkCounts as LinkCounts
    from fedleak.attacks.linkability.similarity import Linkability as Linkability
    from fedleak.attacks.linkability.similarity import PlainCosine as PlainCosine
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "LinkCounts": "fedleak.attacks.linkability.links",
            "Linkability": "fedleak.attacks.linkability.similarity",
            "PlainCosine": "fedleak.attacks.linkability.similarity",
        },
    )
