"""A number with its interval."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Range":
        """Number and interval times a positive factor."""
        return Range(self.value * factor, self.low * factor, self.high * factor)
