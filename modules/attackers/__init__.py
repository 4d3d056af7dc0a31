"""Modules that attacks train."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from modules.attackers.gradient_matching import GradientMatching as GradientMatching
    from modules.attackers.identity_nets import ReidentificationNet as ReidentificationNet
    from modules.attackers.identity_nets import SiameseNet as SiameseNet

__all__ = exports(__name__)
