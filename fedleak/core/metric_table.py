"""The table of metrics: meaning, direction and the value of guessing."""

import math
from collections.abc import Collection, Iterable

from fedleak.core.errors import InputError
from fedleak.core.metric import ANY, CORRELATION, POSITIVE, SHARE, Metric

METRICS: dict[str, Metric] = {}
"""Every metric by name, in the order of reports."""
JUDGED_BY: dict[str, tuple[str, ...]] = {}
"""By question, the metrics by which attacks on it are compared, where they are others than `Metric.judged`."""


def judges(name: str, question: str | None) -> bool:
    """Whether attacks on a question are compared by a metric; `question` is None where it is unknown."""
    judging = JUDGED_BY.get(question or "")
    if judging is None:
        return metric(name).judged
    return name in judging


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
    names = []
    for metric_or_name in metrics:
        if not isinstance(metric_or_name, str):
            add_metric(metric_or_name)
            names.append(metric_or_name.name)
        else:
            names.append(metric_or_name)
    return tuple(names)


def metric(name: str) -> Metric:
    """The entry of a metric; an unknown one is no leak, and higher is better."""
    return METRICS.get(name, Metric(name=name, meaning="", leak=False))


def meanings(names: Collection[str]) -> list[str]:
    """The sentences of the given metrics, in the table's order."""
    return [entry.meaning for entry in METRICS.values() if entry.name in names and entry.meaning]


for _metric in (
    Metric(
        "auc",
        "AUC is 0.5 for guessing and 1 for certainty.",
        judged=True,
        guessing=0.5,
        words="picks the right one of a right and a wrong answer in {} of 100 cases",
        span=SHARE,
    ),
    Metric(
        "f1",
        "F1 is the harmonic mean of the precision and the recall of the decided items.",
        words="scores {} of 100 points for what it names, where missed and wrong answers count alike",
        span=SHARE,
    ),
    Metric(
        "l1",
        "L1 is 0 where all shares are right and 2 where nothing is.",
        judged=True,
        span=(0.0, 2.0),
        words="assigns {} of 100 examples of a client to a wrong class",
        words_scale=50.0,
        lower_is_better=True,
    ),
    Metric(
        "l2",
        "L2 is the Euclidean distance of the shares, 0 where all are right.",
        lower_is_better=True,
        span=(0.0, math.sqrt(2)),
    ),
    Metric("linf", "Linf is the error of the worst share.", lower_is_better=True, span=SHARE),
    Metric(
        "null_false_positive",
        "Null false positive is the share of absent classes that are called present.",
        lower_is_better=True,
        span=SHARE,
    ),
    Metric(
        "null_false_negative",
        "Null false negative is the share of present classes that are called absent.",
        lower_is_better=True,
        span=SHARE,
    ),
    Metric(
        "coverage", "Coverage is the part of the shares that lie within their 95% intervals.", leak=False, span=SHARE
    ),
    Metric(
        "exact",
        "Exact is the share of clients of whom all class counts are right.",
        binary=True,
        words="gets all class counts right for {} of 100 clients",
        span=SHARE,
    ),
    Metric(
        "error",
        "The error is the share of items that are predicted wrongly.",
        judged=True,
        words="is wrong about {} of 100 items",
        lower_is_better=True,
        span=SHARE,
    ),
    Metric(
        "label-error",
        "The label error is the share of a client's own items that are predicted wrongly.",
        lower_is_better=True,
        span=SHARE,
    ),
    Metric("success", "Success is the share of clients whose error is below the tolerance.", binary=True, span=SHARE),
    Metric("cosine", "The cosine is that of the inferred and the true vector.", span=CORRELATION),
    Metric("flipped", "Flipped is the share of vectors with the wrong sign.", leak=False, span=SHARE, binary=True),
    Metric(
        "sharpness",
        "Sharpness is the least share of the theorem's number of calls with which 1 - delta of the clients are found.",
        leak=False,
        lower_is_better=True,
        span=POSITIVE,
    ),
    Metric(
        "ap",
        "AP is the area under the precision-recall curve, 1 for certainty.",
        judged=True,
        words="ranks the answers so that {} of 100 are right, on average, of those down to each right one",
        span=SHARE,
    ),
    Metric("times-chance", "Times chance is AP over that of guessing, 1 for guessing.", span=POSITIVE),
    Metric("times-random", "Times random is AP over that of a random order, 1 for guessing.", span=POSITIVE),
    Metric(
        "top1",
        "Top 1 is the share of messages whose user comes first.",
        binary=True,
        words="names the right user of {} of 100 messages",
        span=SHARE,
    ),
    Metric(
        "top5",
        "Top 5 is the share of messages whose user is among the first five.",
        binary=True,
        words="has the right user among the first five for {} of 100 messages",
        span=SHARE,
    ),
    Metric(
        "epsilon",
        "Epsilon is that of a client's updates with the noise that they have.",
        worst_client=True,
        span=POSITIVE,
    ),
    Metric("tpr", "TPR is the share of members that are called members.", binary=True, span=SHARE),
    Metric(
        "fpr",
        "FPR is the share of the others that are called members.",
        leak=False,
        lower_is_better=True,
        span=SHARE,
        binary=True,
    ),
    Metric(
        "detected", "Detected is the share of probes that a client's check finds.", leak=False, span=SHARE, binary=True
    ),
    Metric(
        "false-alarm",
        "False alarm is the share of honest rounds that a check refuses.",
        leak=False,
        lower_is_better=True,
        span=SHARE,
        binary=True,
    ),
    Metric("held-back", "Held back is the share of updates that were not sent.", leak=False, span=SHARE, binary=True),
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
        leak=False,
        lower_is_better=True,
        span=ANY,
    ),
    Metric(
        "bits-bound",
        "Bits bound is the most that the client's updates can add, given what is publicly done to them.",
        leak=False,
        span=POSITIVE,
    ),
    Metric(
        "bits-share",
        "Bits share is the part of what the client's updates can add that an attack gets from them.",
        leak=False,
        span=ANY,
    ),
    Metric(
        "bits-possible",
        "Bits possible is the logarithm to base 2 of the number of possible answers, above which no update adds bits on"
        " average.",
        leak=False,
        span=POSITIVE,
    ),
    Metric(
        "bits-beyond-counts",
        "Bits beyond counts are the part of the bits that is left for a server that knows how many of a client's"
        " records are of each class.",
        leak=False,
        span=ANY,
    ),
    Metric(
        "matched-clients",
        "Matched clients is the share of clients whose update fits their own answers better than those of each other"
        " client with as many true answers.",
        leak=False,
        binary=True,
        span=SHARE,
    ),
    Metric(
        "matched-clients-bound",
        "Matched clients bound is the most of them that the declared epsilon allows, whatever the server knew before.",
        leak=False,
        span=SHARE,
    ),
    Metric(
        "calibration-error",
        "The calibration error is the mean distance between the probabilities that an attack gives its answers and the"
        " share of them that are true.",
        leak=False,
        lower_is_better=True,
        span=SHARE,
    ),
    Metric("hr@10", "HR@10 is the share of held-out items among the first ten.", leak=False, span=SHARE, binary=True),
    Metric("mae", "MAE is the model's mean absolute error.", leak=False, lower_is_better=True, span=POSITIVE),
):
    add_metric(_metric)
