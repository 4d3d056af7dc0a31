"""Attacks on class compositions: which classes do a client's examples have, in what proportion?"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.composition.baselines import EqualCounts as EqualCounts
    from fedleak.attacks.composition.baselines import RandomGuess as RandomGuess
    from fedleak.attacks.composition.closed_form import ClosedForm as ClosedForm
    from fedleak.attacks.composition.decaf import Decaf as Decaf
    from fedleak.attacks.composition.decaf_match import DecafMatch as DecafMatch
    from fedleak.attacks.composition.exact_counts import ExactCounts as ExactCounts
    from fedleak.attacks.composition.ilrg import ILRG as ILRG
    from fedleak.attacks.composition.label_inference import AuxiliaryGradients as AuxiliaryGradients
    from fedleak.attacks.composition.label_inference import SoftLabels as SoftLabels
    from fedleak.attacks.composition.label_sets import RLG as RLG
    from fedleak.attacks.composition.label_sets import GradInversionLabels as GradInversionLabels
    from fedleak.attacks.composition.label_sets import IDLGLabels as IDLGLabels
    from fedleak.attacks.composition.last_layer import LastLayerCounts as LastLayerCounts
    from fedleak.attacks.composition.llg import LLG as LLG
    from fedleak.attacks.composition.llg import LLGAlone as LLGAlone
    from fedleak.attacks.composition.llg import LLGDummies as LLGDummies
    from fedleak.attacks.composition.output_counts import OutputCounts as OutputCounts
    from fedleak.attacks.composition.rlu import RLU as RLU
    from fedleak.attacks.composition.uniform_present import UniformPresent as UniformPresent
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "EqualCounts": "fedleak.attacks.composition.baselines",
            "RandomGuess": "fedleak.attacks.composition.baselines",
            "ClosedForm": "fedleak.attacks.composition.closed_form",
            "Decaf": "fedleak.attacks.composition.decaf",
            "DecafMatch": "fedleak.attacks.composition.decaf_match",
            "ExactCounts": "fedleak.attacks.composition.exact_counts",
            "ILRG": "fedleak.attacks.composition.ilrg",
            "AuxiliaryGradients": "fedleak.attacks.composition.label_inference",
            "SoftLabels": "fedleak.attacks.composition.label_inference",
            "RLG": "fedleak.attacks.composition.label_sets",
            "GradInversionLabels": "fedleak.attacks.composition.label_sets",
            "IDLGLabels": "fedleak.attacks.composition.label_sets",
            "LastLayerCounts": "fedleak.attacks.composition.last_layer",
            "LLG": "fedleak.attacks.composition.llg",
            "LLGAlone": "fedleak.attacks.composition.llg",
            "LLGDummies": "fedleak.attacks.composition.llg",
            "OutputCounts": "fedleak.attacks.composition.output_counts",
            "RLU": "fedleak.attacks.composition.rlu",
            "UniformPresent": "fedleak.attacks.composition.uniform_present",
        },
    )
