"""Modules that attacks train."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.modules.attackers.gradient_matching import InteractionMatching as InteractionMatching
    from fedleak.modules.attackers.identity_nets import ReidentificationNet as ReidentificationNet
    from fedleak.modules.attackers.identity_nets import SiameseNet as SiameseNet
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "InteractionMatching": "fedleak.modules.attackers.gradient_matching",
            "ReidentificationNet": "fedleak.modules.attackers.identity_nets",
            "SiameseNet": "fedleak.modules.attackers.identity_nets",
        },
    )
