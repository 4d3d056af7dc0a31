"""Attacks on class compositions: which classes do a client's examples have, in what proportion?"""

from attacks.composition.baselines import RandomGuess, UniformCorrected, UniformPresent
from attacks.composition.decaf import Decaf, DecafEarlyStopped
from attacks.composition.decaf_match import DecafMatch

__all__ = ["Decaf", "DecafEarlyStopped", "DecafMatch", "RandomGuess", "UniformCorrected", "UniformPresent"]
