"""A metric: its meaning, its direction and the values that it can have."""

import math
from dataclasses import KW_ONLY, dataclass

from fedleak.core.errors import InputError

SHARE = (0.0, 1.0)
"""Span of a share, a rate, an AUC."""
CORRELATION = (-1.0, 1.0)
"""Span of a correlation or a cosine."""
POSITIVE = (0.0, math.inf)
"""Span of a number of things, a distance, an error."""
ANY = (-math.inf, math.inf)
"""Span of a metric that has any value."""


@dataclass(frozen=True)
class Metric:
    """A metric, as described in reports, gates and figures.

    Attributes:
        name: lower-case name in results.
        meaning: one sentence on its scale.
        leak: whether it measures leakage, so that a gate may limit it; other metrics measure the attack's calibration,
            or the model.
        lower_is_better: whether a lower value is better; for a leak, better for the attack.
        judged: whether attacks are compared by it in figures, differences and the diagnosis of failures, on questions
            that name no metrics of their own, see `JUDGED_BY`.
        guessing: value of guessing for any data; None if only a baseline can show it.
        binary: whether a single value is 0 or 1, so that equal values still leave uncertainty.
        worst_client: whether a gate limits the worst client's value instead of the mean over clients.
        span: least and largest possible value, to which intervals are cut, and beyond which a gate has no limit; an
            infinite end for no limit. None only in a metric from elsewhere that does not say it: it has no limits.
        predicts: metric whose value the attack expects of itself by this one, so that tables show the measured value
            next to it; None for what is measured.
        words: a value in everyday words, with ``{}`` for `words_scale` times the value, e.g. "names the right client
            for {} of 100 records"; continues "the best attack". Empty for none: a statement then has the number alone.
        words_scale: see `words`.

        certified: names of the metrics of the share of which an attack is certain before it is compared with the truth,
            and of the number of these that are wrong, and that share in words, with ``{}`` for a number of 100; None
            without certificates.

    Example:
        >>> from fedleak import Metric
        >>> error = Metric("size-error", "The size error is the relative error of the number.", lower_is_better=True)
        >>> error.certainty
        0.0
    """

    name: str
    meaning: str
    _: KW_ONLY
    leak: bool = True
    lower_is_better: bool = False
    judged: bool = False
    guessing: float | None = None
    binary: bool = False
    worst_client: bool = False
    span: tuple[float, float] | None = None
    predicts: str | None = None
    words: str = ""
    words_scale: float = 100.0
    certified: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        if self.predicts is not None and (self.leak or self.judged):
            raise InputError(
                expected=f"leak=False of {self.name}, which an attack expects of itself",
                found="a metric of the leak",
                way_out="Only measured values may be taken for the leak.",
            )

    @property
    def certainty(self) -> float:
        """Value of a perfect attack."""
        return 0.0 if self.lower_is_better else 1.0

    @property
    def sign(self) -> int:
        """1 if a higher value is more leakage, -1 if a lower one is."""
        return -1 if self.lower_is_better else 1

    def leakage(self, value: float) -> float:
        """A value with the sign with which more is more leakage.

        >>> Metric("error", "", lower_is_better=True).leakage(0.25)
        -0.25
        """
        return self.sign * value
