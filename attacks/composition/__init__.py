"""Attacks on class compositions: which classes do a client's examples have, in what proportion?"""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from attacks.composition.baselines import EqualCounts as EqualCounts
    from attacks.composition.baselines import RandomGuess as RandomGuess
    from attacks.composition.closed_form import ClosedForm as ClosedForm
    from attacks.composition.decaf import Decaf as Decaf
    from attacks.composition.decaf_match import DecafMatch as DecafMatch
    from attacks.composition.exact_counts import ExactCounts as ExactCounts
    from attacks.composition.ilrg import ILRG as ILRG
    from attacks.composition.label_inference import AuxiliaryGradients as AuxiliaryGradients
    from attacks.composition.label_inference import SoftLabels as SoftLabels
    from attacks.composition.label_sets import RLG as RLG
    from attacks.composition.label_sets import GradInversionLabels as GradInversionLabels
    from attacks.composition.label_sets import IDLGLabels as IDLGLabels
    from attacks.composition.last_layer import LastLayerCounts as LastLayerCounts
    from attacks.composition.llg import LLG as LLG
    from attacks.composition.llg import LLGAlone as LLGAlone
    from attacks.composition.llg import LLGDummies as LLGDummies
    from attacks.composition.output_counts import OutputCounts as OutputCounts
    from attacks.composition.rlu import RLU as RLU
    from attacks.composition.uniform_present import UniformPresent as UniformPresent

__all__ = exports(__name__)
