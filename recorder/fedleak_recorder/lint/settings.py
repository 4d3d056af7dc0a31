"""What a lint counts as few."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What a lint counts as few.

    Attributes:
        minimum: smallest number of people that a count, a statistic or a centroid may be of.
    """

    minimum: int = 5
