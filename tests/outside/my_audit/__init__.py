"""A user's package outside the checkout; `tests.test_outside` copies it to another folder and runs it."""

from my_audit.best_value import BestValue
from my_audit.interaction_counts import CountByNorm, CountEstimate, CountGuess
from my_audit.largest_value import LargestValue
from my_audit.model_change import ModelChange
from my_audit.place_vectors import PlaceVectors
from my_audit.rounding import Rounding
from my_audit.scaled import Scaled
from my_audit.small_net import SmallNet
from my_audit.update_norms import UpdateNorms
from my_audit.visits import Visits

__all__ = [
    "BestValue",
    "CountByNorm",
    "CountEstimate",
    "CountGuess",
    "LargestValue",
    "ModelChange",
    "PlaceVectors",
    "Rounding",
    "Scaled",
    "SmallNet",
    "UpdateNorms",
    "Visits",
]
