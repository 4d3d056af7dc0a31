"""The table of metrics: meaning, direction and the value of guessing."""

import math
from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedleak.core.errors import InputError


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


METRICS: dict[str, Metric] = {}
"""Every metric by name, in the order of reports."""
JUDGED_BY: dict[str, tuple[str, ...]] = {}
"""By question, the metrics by which attacks on it are compared, where they are others than `Metric.judged`."""


def judges(name: str, question: str | None) -> bool:
    """Whether attacks on a question are compared by a metric; `question` is None where it is unknown."""
    chosen = JUDGED_BY.get(question or "")
    return metric(name).judged if chosen is None else name in chosen


def add_metric(metric: Metric) -> Metric:
    """Adds a metric to the table, e.g. that of an estimate.

    Example:
        >>> from fedleak import Metric, add_metric
        >>> add_metric(Metric("share-found", "The share found is 1 for certainty.", span=(0.0, 1.0))).certainty
        1.0
    """
    if METRICS.setdefault(metric.name, metric) != metric:
        raise InputError(
            expected="metrics with different names",
            found=f"two different metrics {metric.name!r}",
            way_out="Rename yours, or use the existing one: METRICS[name] of fedleak.core.metric_table.",
        )
    return metric


def metric_names(metrics: Iterable[str | Metric]) -> tuple[str, ...]:
    """Names of metrics, given by name or as new entries, which are added to the table."""
    return tuple(one if isinstance(one, str) else add_metric(one).name for one in metrics)


def metric(name: str) -> Metric:
    """The entry of a metric; an unknown one is no leak, and higher is better."""
    return METRICS.get(name, Metric(name=name, meaning="", leak=False))


def meanings(names: Collection[str]) -> list[str]:
    """The sentences of the given metrics, in the table's order."""
    return [entry.meaning for entry in METRICS.values() if entry.name in names and entry.meaning]


SHARE = (0.0, 1.0)
"""Span of a share, a rate, an AUC."""
CORRELATION = (-1.0, 1.0)
"""Span of a correlation or a cosine."""
POSITIVE = (0.0, math.inf)
"""Span of a number of things, a distance, an error."""
ANY = (-math.inf, math.inf)
"""Span of a metric that has any value."""
_LOW: dict[str, Any] = {"lower_is_better": True}
_OTHER: dict[str, Any] = {"leak": False}
_SHARE: dict[str, Any] = {"span": SHARE}
_LOW_SHARE: dict[str, Any] = _LOW | _SHARE
_POSITIVE: dict[str, Any] = {"span": POSITIVE}
for _metric in (
    Metric(
        "auc",
        "AUC is 0.5 for guessing and 1 for certainty.",
        judged=True,
        guessing=0.5,
        words="picks the right one of a right and a wrong answer in {} of 100 cases",
        **_SHARE,
    ),
    Metric(
        "f1",
        "F1 is the harmonic mean of the precision and the recall of the decided items.",
        words="scores {} of 100 points for what it names, where missed and wrong answers count alike",
        **_SHARE,
    ),
    Metric(
        "l1",
        "L1 is 0 where all shares are right and 2 where nothing is.",
        judged=True,
        span=(0.0, 2.0),
        words="assigns {} of 100 examples of a client to a wrong class",
        words_scale=50.0,
        **_LOW,
    ),
    Metric(
        "l2", "L2 is the Euclidean distance of the shares, 0 where all are right.", **_LOW, span=(0.0, math.sqrt(2))
    ),
    Metric("linf", "Linf is the error of the worst share.", **_LOW, **_SHARE),
    Metric(
        "null_false_positive",
        "Null false positive is the share of absent classes that are called present.",
        **_LOW_SHARE,
    ),
    Metric(
        "null_false_negative",
        "Null false negative is the share of present classes that are called absent.",
        **_LOW_SHARE,
    ),
    Metric("coverage", "Coverage is the part of the shares that lie within their 95% intervals.", **_OTHER, **_SHARE),
    Metric(
        "exact",
        "Exact is the share of clients of whom all class counts are right.",
        binary=True,
        words="gets all class counts right for {} of 100 clients",
        **_SHARE,
    ),
    Metric(
        "error",
        "The error is the share of items that are predicted wrongly.",
        judged=True,
        words="is wrong about {} of 100 items",
        **_LOW_SHARE,
    ),
    Metric(
        "label-error", "The label error is the share of a client's own items that are predicted wrongly.", **_LOW_SHARE
    ),
    Metric("success", "Success is the share of clients whose error is below the tolerance.", binary=True, **_SHARE),
    Metric("cosine", "The cosine is that of the inferred and the true vector.", span=CORRELATION),
    Metric("flipped", "Flipped is the share of vectors with the wrong sign.", **_OTHER, **_SHARE, binary=True),
    Metric(
        "sharpness",
        "Sharpness is the least share of the theorem's number of calls with which 1 - delta of the clients are found.",
        **_OTHER,
        **_LOW,
        span=POSITIVE,
    ),
    Metric(
        "ap",
        "AP is the area under the precision-recall curve, 1 for certainty.",
        judged=True,
        words="ranks the answers so that {} of 100 are right, on average, of those down to each right one",
        **_SHARE,
    ),
    Metric("times-chance", "Times chance is AP over that of guessing, 1 for guessing.", **_POSITIVE),
    Metric("times-random", "Times random is AP over that of a random order, 1 for guessing.", **_POSITIVE),
    Metric(
        "top1",
        "Top 1 is the share of messages whose user comes first.",
        binary=True,
        words="names the right user of {} of 100 messages",
        **_SHARE,
    ),
    Metric(
        "top5",
        "Top 5 is the share of messages whose user is among the first five.",
        binary=True,
        words="has the right user among the first five for {} of 100 messages",
        **_SHARE,
    ),
    Metric(
        "epsilon",
        "Epsilon is that of a client's updates with the noise that they have.",
        worst_client=True,
        **_POSITIVE,
    ),
    Metric("tpr", "TPR is the share of members that are called members.", binary=True, **_SHARE),
    Metric("fpr", "FPR is the share of the others that are called members.", **_OTHER, **_LOW_SHARE, binary=True),
    Metric("detected", "Detected is the share of probes that a client's check finds.", **_OTHER, **_SHARE, binary=True),
    Metric(
        "false-alarm",
        "False alarm is the share of honest rounds that a check refuses.",
        **_OTHER,
        **_LOW_SHARE,
        binary=True,
    ),
    Metric("held-back", "Held back is the share of updates that were not sent.", **_OTHER, **_SHARE, binary=True),
    Metric(
        "bits",
        "Bits are what the update adds to the prior: the logarithm to base 2 of the probability of a client's true"
        " answers given both, over that given the prior; 0 for an update that says nothing.",
        guessing=0.0,
        words="adds {} bits to what is known of a client without the update",
        words_scale=1.0,
        span=ANY,
    ),
    Metric(
        "bits-left",
        "Bits left are what remains unknown of a client's answers, given the prior, and the update where it is used.",
        **_OTHER,
        **_LOW,
        span=ANY,
    ),
    Metric(
        "bits-bound",
        "Bits bound is the most that the client's updates can add, given what is publicly done to them.",
        **_OTHER,
        span=POSITIVE,
    ),
    Metric(
        "bits-share",
        "Bits share is the part of what the client's updates can add that an attack gets from them.",
        **_OTHER,
        span=ANY,
    ),
    Metric(
        "bits-possible",
        "Bits possible is the logarithm to base 2 of the number of possible answers, above which no update adds bits on"
        " average.",
        **_OTHER,
        span=POSITIVE,
    ),
    Metric(
        "bits-beyond-counts",
        "Bits beyond counts are the part of the bits that is left for a server that knows how many of a client's"
        " records are of each class.",
        **_OTHER,
        span=ANY,
    ),
    Metric(
        "matched-clients",
        "Matched clients is the share of clients whose update fits their own answers better than those of each other"
        " client with as many true answers.",
        **_OTHER,
        binary=True,
        span=SHARE,
    ),
    Metric(
        "matched-clients-bound",
        "Matched clients bound is the most of them that the declared epsilon allows, whatever the server knew before.",
        **_OTHER,
        span=SHARE,
    ),
    Metric(
        "calibration-error",
        "The calibration error is the mean distance between the probabilities that an attack gives its answers and the"
        " share of them that are true.",
        **_OTHER,
        **_LOW,
        span=SHARE,
    ),
    Metric("hr@10", "HR@10 is the share of held-out items among the first ten.", **_OTHER, **_SHARE, binary=True),
    Metric("mae", "MAE is the model's mean absolute error.", **_OTHER, **_LOW, span=POSITIVE),
):
    add_metric(_metric)
