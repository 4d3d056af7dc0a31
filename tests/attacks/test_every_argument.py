"""Values of arguments that make no sense are refused by the argument's name."""

import pytest

from fedleak.attacks.composition.closed_form import ClosedForm
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.decaf_match import DecafMatch
from fedleak.attacks.identifiability.likelihood import PACLikelihood
from fedleak.attacks.images.affine_inversion import AffineInversion
from fedleak.attacks.images.pointwise_matching import PointwiseMatching
from fedleak.attacks.interactions import Chance
from fedleak.attacks.matching.same_user import MatchingSiamese
from fedleak.attacks.re_identification.fingerprint import FingerprintAttack
from fedleak.attacks.re_identification.reidentification import CentredSVM, ReidKNN, ReidMLP, ReidSVM
from fedleak.attacks.recommendation.imia import IMIA
from fedleak.attacks.recommendation.matched_filter import MatchedFilter
from fedleak.attacks.recommendation.raifle import Raifle
from fedleak.attacks.sums_over_rounds.published import RidgeOnSums
from fedleak.attacks.sums_over_rounds.records_over_rounds import HoldersToReveal
from fedleak.attacks.sums_over_rounds.rounds_to_reveal import RoundsToReveal
from fedleak.attacks.sums_over_rounds.words_over_rounds import WordsToReveal
from fedleak.core.attack import Attack


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [
        (MatchedFilter, "shadows", 0),
        (IMIA, "confirmed", 0),
        (IMIA, "selection", 0),
        (Raifle, "max_iter", 0),
        (Chance, "positive_share", 1),
        (Decaf, "null_classes", "guess"),
        (Decaf, "auxiliary_per_class", 0),
        (Decaf, "rounds", "some"),
        (DecafMatch, "shared", 1),
        (DecafMatch, "passes", -1),
        (DecafMatch, "layers", "first"),
        (DecafMatch, "local", 1),
        (DecafMatch, "auxiliary_per_class", 0),
        (ClosedForm, "least", 1.5),
        (ReidSVM, "penalty", 0),
        (ReidKNN, "neighbours", 0),
        (ReidMLP, "epochs", 0),
        (CentredSVM, "sharpness", 0),
        (FingerprintAttack, "rounds", 0),
        (MatchingSiamese, "steps", 0),
        (PACLikelihood, "iterations", 0),
        (AffineInversion, "barriers", 0),
        (PointwiseMatching, "max_iter", 0),
        (RoundsToReveal, "after", (0,)),
        (RoundsToReveal, "most", 0),
        (RoundsToReveal, "sensitive", 0),
        (RidgeOnSums, "simulated", 1),
        (RidgeOnSums, "ridge", -1),
        (WordsToReveal, "sensitive", 0),
        (HoldersToReveal, "most", 0),
    ],
)
def test_impossible_values_are_refused(kind: type[Attack], argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=argument):
        kind(**{argument: value})
