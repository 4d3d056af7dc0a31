"""What clients do to an update before they send it; ``from fedleak.defenses import LocalDP`` gives a defense."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.defenses.base import Defense as Defense
    from fedleak.defenses.base import LocalStep as LocalStep
    from fedleak.defenses.base import Update as Update
    from fedleak.defenses.canaries import Canaries as Canaries
    from fedleak.defenses.compression import Clip as Clip
    from fedleak.defenses.compression import Sign as Sign
    from fedleak.defenses.compression import TopK as TopK
    from fedleak.defenses.device_noise import DeviceNoise as DeviceNoise
    from fedleak.defenses.local_dp import LocalDP as LocalDP
    from fedleak.defenses.manipulation_checks import Check as Check
    from fedleak.defenses.mixup import Mixup as Mixup
    from fedleak.defenses.refusal import ProbeCheck as ProbeCheck
    from fedleak.defenses.refusal import RefuseProbes as RefuseProbes
    from fedleak.defenses.row_noise import RowNoise as RowNoise
    from fedleak.defenses.secure_aggregation import PerElementSum as PerElementSum
    from fedleak.defenses.secure_aggregation import SecureAggregation as SecureAggregation
    from fedleak.defenses.secure_aggregation import SecureSum as SecureSum
    from fedleak.defenses.soteria import Soteria as Soteria
    from fedleak.defenses.trees import MaskedHessians as MaskedHessians
    from fedleak.defenses.trees import NoisyLeaves as NoisyLeaves
    from fedleak.defenses.trees import RoundedTrees as RoundedTrees
    from fedleak.defenses.trees import TreeDefense as TreeDefense
    from fedleak.defenses.update_l1 import UpdateL1 as UpdateL1
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Defense": "fedleak.defenses.base",
            "LocalStep": "fedleak.defenses.base",
            "Update": "fedleak.defenses.base",
            "Canaries": "fedleak.defenses.canaries",
            "Clip": "fedleak.defenses.compression",
            "Sign": "fedleak.defenses.compression",
            "TopK": "fedleak.defenses.compression",
            "DeviceNoise": "fedleak.defenses.device_noise",
            "LocalDP": "fedleak.defenses.local_dp",
            "Check": "fedleak.defenses.manipulation_checks",
            "Mixup": "fedleak.defenses.mixup",
            "ProbeCheck": "fedleak.defenses.refusal",
            "RefuseProbes": "fedleak.defenses.refusal",
            "RowNoise": "fedleak.defenses.row_noise",
            "PerElementSum": "fedleak.defenses.secure_aggregation",
            "SecureAggregation": "fedleak.defenses.secure_aggregation",
            "SecureSum": "fedleak.defenses.secure_aggregation",
            "Soteria": "fedleak.defenses.soteria",
            "MaskedHessians": "fedleak.defenses.trees",
            "NoisyLeaves": "fedleak.defenses.trees",
            "RoundedTrees": "fedleak.defenses.trees",
            "TreeDefense": "fedleak.defenses.trees",
            "UpdateL1": "fedleak.defenses.update_l1",
        },
    )
