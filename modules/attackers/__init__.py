"""Modules that attacks train."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.modules.attackers.gradient_matching import GradientMatching as GradientMatching
    from fedleak.modules.attackers.identity_nets import ReidentificationNet as ReidentificationNet
    from fedleak.modules.attackers.identity_nets import SiameseNet as SiameseNet

__all__ = exports(__name__)
