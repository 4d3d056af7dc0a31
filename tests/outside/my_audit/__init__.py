"""What a user adds from outside the checkout; `tests.test_outside` copies it away and runs it."""

from my_audit.interaction_counts import CountByNorm, CountEstimate, CountGuess
from my_audit.place_vectors import PlaceVectors
from my_audit.rounding import Rounding, Scaled
from my_audit.visits import Visits

__all__ = ["CountByNorm", "CountEstimate", "CountGuess", "PlaceVectors", "Rounding", "Scaled", "Visits"]
