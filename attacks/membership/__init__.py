"""Attacks on membership: did a client train on something that the server has in mind, and which client did?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.membership.baselines import ClassCounts as ClassCounts
    from attacks.membership.baselines import RandomMember as RandomMember
    from attacks.membership.baselines import RandomSource as RandomSource
    from attacks.membership.baselines import SentModelLoss as SentModelLoss
    from attacks.membership.candidate_fit import CandidateFit as CandidateFit
    from attacks.membership.marginal import FedMIACosine as FedMIACosine
    from attacks.membership.marginal import FedMIALoss as FedMIALoss
    from attacks.membership.marginal import GradientCosine as GradientCosine
    from attacks.membership.marginal import GradientDifference as GradientDifference
    from attacks.membership.marginal import GradientNorm as GradientNorm
    from attacks.membership.marginal import RecordLoss as RecordLoss
    from attacks.membership.retrieval import RetrievalFingerprint as RetrievalFingerprint
    from attacks.membership.source import CandidateSource as CandidateSource
    from attacks.membership.source import SmallestLoss as SmallestLoss

__all__ = exports(__name__)
