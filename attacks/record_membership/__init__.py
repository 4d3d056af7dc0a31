"""Attacks on the membership of records: did a client train on a record?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.record_membership.baselines import RandomMember as RandomMember
    from fedleak.attacks.record_membership.baselines import SentModelLoss as SentModelLoss
    from fedleak.attacks.record_membership.candidate_fit import CandidateFit as CandidateFit
    from fedleak.attacks.record_membership.class_counts import ClassCounts as ClassCounts
    from fedleak.attacks.record_membership.marginal import FedMIACosine as FedMIACosine
    from fedleak.attacks.record_membership.marginal import FedMIALoss as FedMIALoss
    from fedleak.attacks.record_membership.marginal import GradientCosine as GradientCosine
    from fedleak.attacks.record_membership.marginal import GradientDifference as GradientDifference
    from fedleak.attacks.record_membership.marginal import GradientNorm as GradientNorm
    from fedleak.attacks.record_membership.marginal import RecordLoss as RecordLoss
    from fedleak.attacks.record_membership.projection_residual import ProjectionResidual as ProjectionResidual
    from fedleak.attacks.record_membership.projres import ProjRes as ProjRes
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "RandomMember": "fedleak.attacks.record_membership.baselines",
            "SentModelLoss": "fedleak.attacks.record_membership.baselines",
            "CandidateFit": "fedleak.attacks.record_membership.candidate_fit",
            "ClassCounts": "fedleak.attacks.record_membership.class_counts",
            "FedMIACosine": "fedleak.attacks.record_membership.marginal",
            "FedMIALoss": "fedleak.attacks.record_membership.marginal",
            "GradientCosine": "fedleak.attacks.record_membership.marginal",
            "GradientDifference": "fedleak.attacks.record_membership.marginal",
            "GradientNorm": "fedleak.attacks.record_membership.marginal",
            "RecordLoss": "fedleak.attacks.record_membership.marginal",
            "ProjectionResidual": "fedleak.attacks.record_membership.projection_residual",
            "ProjRes": "fedleak.attacks.record_membership.projres",
        },
    )
