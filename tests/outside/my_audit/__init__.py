"""What a user adds from outside the checkout; `tests.test_outside` copies it away and runs it."""

from my_audit.interaction_counts import CountByNorm, CountEstimate, CountGuess

__all__ = ["CountByNorm", "CountEstimate", "CountGuess"]
