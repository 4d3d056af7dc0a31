"""The table of metrics: what each measures, which way it points and what guessing gives."""

from collections.abc import Collection
from dataclasses import dataclass

from protocol.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric, described for reports, gates and figures.

    Attributes:
        name: lower-case name in results.
        meaning: one sentence on its scale.
        leak: whether it measures how much leaked, so that a gate may limit it; other metrics measure the attack's
            honesty, or the model.
        lower_is_better: whether a lower number is the better one: of a leak, more leaked.
        judged: whether attacks are judged by it: figures, differences and the diagnosis of failures use it.
        guessing: value that guessing gives whatever the data; None where only a baseline can tell.
        binary: whether a single value is 0 or 1, so that values that are all alike still leave a doubt.
    """

    name: str
    meaning: str
    leak: bool = True
    lower_is_better: bool = False
    judged: bool = False
    guessing: float | None = None
    binary: bool = False

    @property
    def certainty(self) -> float:
        """Value of an attack that is right about everything."""
        return 0.0 if self.lower_is_better else 1.0


METRICS: dict[str, Metric] = {}
"""Every metric by name, in the order in which reports show them."""


def add_metric(metric: Metric) -> Metric:
    """Adds a metric to the table; estimates do so for theirs.

    Raises:
        InputError: another metric has that name.
    """
    if METRICS.setdefault(metric.name, metric) != metric:
        raise InputError(
            expected="metrics with different names",
            found=f"two different metrics {metric.name!r}",
            way_out="Rename yours, or use the existing one: METRICS[name] of protocol.metrics.",
        )
    return metric


def metric(name: str) -> Metric:
    """The entry of a metric; one that is not in the table is no leak, and more of it is better."""
    return METRICS.get(name, Metric(name=name, meaning="", leak=False))


def meanings(names: Collection[str]) -> list[str]:
    """The sentences of the given metrics, in the table's order."""
    return [entry.meaning for entry in METRICS.values() if entry.name in names and entry.meaning]


for _metric in (
    Metric(name="auc", meaning="AUC is 0.5 for guessing and 1 for certainty.", judged=True, guessing=0.5),
    Metric(name="f1", meaning="F1 is the harmonic mean of the precision and the recall of the decided items."),
    Metric(
        name="l1",
        meaning="L1 is 0 where all shares are right and 2 where nothing is.",
        lower_is_better=True,
        judged=True,
    ),
    Metric(
        name="l2", meaning="L2 is the Euclidean distance of the shares, 0 where all are right.", lower_is_better=True
    ),
    Metric(name="linf", meaning="Linf is the error of the worst share.", lower_is_better=True),
    Metric(
        name="null_false_positive",
        meaning="Null false positive is the share of the classes not held that are called present.",
        lower_is_better=True,
    ),
    Metric(
        name="null_false_negative",
        meaning="Null false negative is the share of the classes held that are called absent.",
        lower_is_better=True,
    ),
    Metric(
        name="coverage", meaning="Coverage is the part of the shares that lie within their 95% intervals.", leak=False
    ),
    Metric(
        name="error",
        meaning="The error is the share of items that are predicted wrongly.",
        lower_is_better=True,
        judged=True,
    ),
    Metric(
        name="label-error",
        meaning="The label error is the share of a client's own items that are predicted wrongly.",
        lower_is_better=True,
    ),
    Metric(name="success", meaning="Success is the share of clients whose error is below the tolerance.", binary=True),
    Metric(name="cosine", meaning="The cosine is that of the inferred and the true vector."),
    Metric(name="flipped", meaning="Flipped is the share of vectors with the wrong sign.", leak=False, binary=True),
    Metric(name="ap", meaning="AP is the area under the precision-recall curve, 1 for certainty.", judged=True),
    Metric(name="times-chance", meaning="Times chance is AP over that of guessing, 1 for guessing."),
    Metric(name="times-random", meaning="Times random is AP over that of a random order, 1 for guessing."),
    Metric(name="top1", meaning="Top 1 is the share of messages whose user comes first.", binary=True),
    Metric(name="top5", meaning="Top 5 is the share of messages whose user is among the first five.", binary=True),
    Metric(name="tpr", meaning="TPR is the share of members that are called members.", binary=True),
    Metric(
        name="fpr",
        meaning="FPR is the share of the others that are called members.",
        leak=False,
        lower_is_better=True,
        binary=True,
    ),
    Metric(
        name="detected",
        meaning="Detected is the share of probes that a client's check finds.",
        leak=False,
        binary=True,
    ),
    Metric(
        name="false-alarm",
        meaning="False alarm is the share of honest rounds that a client's check refuses.",
        leak=False,
        lower_is_better=True,
        binary=True,
    ),
    Metric(name="held-back", meaning="Held back is the share of updates that were not sent.", leak=False, binary=True),
    Metric(name="hr@10", meaning="HR@10 is the share of held-out items among the first ten.", leak=False, binary=True),
    Metric(name="mae", meaning="MAE is the model's mean absolute error.", leak=False, lower_is_better=True),
):
    add_metric(_metric)
