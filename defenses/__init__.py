"""What clients do to an update before they send it; ``from defenses import LocalDP`` gives a defense."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from defenses.base import Defense as Defense
    from defenses.base import LocalStep as LocalStep
    from defenses.base import Update as Update
    from defenses.canaries import Canaries as Canaries
    from defenses.compression import Clip as Clip
    from defenses.compression import Sign as Sign
    from defenses.compression import TopK as TopK
    from defenses.device_noise import DeviceNoise as DeviceNoise
    from defenses.local_dp import LocalDP as LocalDP
    from defenses.manipulation_checks import Check as Check
    from defenses.mixup import Mixup as Mixup
    from defenses.refusal import ProbeCheck as ProbeCheck
    from defenses.refusal import RefuseProbes as RefuseProbes
    from defenses.row_noise import RowNoise as RowNoise
    from defenses.secure_aggregation import PerElementSum as PerElementSum
    from defenses.secure_aggregation import SecureAggregation as SecureAggregation
    from defenses.secure_aggregation import SecureSum as SecureSum
    from defenses.soteria import Soteria as Soteria
    from defenses.update_l1 import UpdateL1 as UpdateL1

__all__ = exports(__name__)
