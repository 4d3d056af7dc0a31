"""How a score is judged: what each metric measures, which way it points, and what an attack must beat."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        meaning: a sentence on its numbers.
        leak: whether it measures how much leaked; the others measure the attack's honesty, or the model.
        lower_is_better: whether a lower number is the better one: of a leak, more leaked.
        binary: whether a single value is 0 or 1, so that values that are all alike still leave a doubt.
    """

    meaning: str
    leak: bool = True
    lower_is_better: bool = False
    binary: bool = False


METRICS: dict[str, Metric] = {
    "auc": Metric(meaning="AUC is 0.5 for guessing and 1 for certainty."),
    "f1": Metric(meaning="F1 is the harmonic mean of the precision and the recall of the decided items."),
    "ap": Metric(meaning="AP is the area under the precision-recall curve, 1 for certainty."),
    "times-chance": Metric(meaning="Times chance is AP over that of guessing, 1 for guessing."),
    "times-random": Metric(meaning="Times random is AP over that of a random order, 1 for guessing."),
    "top1": Metric(meaning="Top 1 is the share of messages whose user comes first.", binary=True),
    "top5": Metric(meaning="Top 5 is the share of messages whose user is among the first five.", binary=True),
    "tpr": Metric(meaning="TPR is the share of members that are called members.", binary=True),
    "fpr": Metric(
        meaning="FPR is the share of the others that are called members.",
        leak=False,
        lower_is_better=True,
        binary=True,
    ),
    "success": Metric(meaning="Success is the share of clients whose error is below the tolerance.", binary=True),
    "error": Metric(meaning="The error is the share of items that are predicted wrongly.", lower_is_better=True),
    "label-error": Metric(
        meaning="The label error is the share of a client's own items that are predicted wrongly.", lower_is_better=True
    ),
    "l1": Metric(meaning="L1 is 0 where all shares are right and 2 where nothing is.", lower_is_better=True),
    "l2": Metric(meaning="L2 is the Euclidean distance of the shares, 0 where all are right.", lower_is_better=True),
    "linf": Metric(meaning="Linf is the error of the worst share.", lower_is_better=True),
    "null_false_positive": Metric(
        meaning="Null false positive is the share of the classes not held that are called present.",
        lower_is_better=True,
    ),
    "null_false_negative": Metric(
        meaning="Null false negative is the share of the classes held that are called absent.", lower_is_better=True
    ),
    "coverage": Metric(meaning="Coverage is the part of the shares that lie within their 95% intervals.", leak=False),
    "detected": Metric(meaning="Detected is the share of probes that a client's check finds.", leak=False, binary=True),
    "false-alarm": Metric(
        meaning="False alarm is the share of honest rounds that a client's check refuses.",
        leak=False,
        lower_is_better=True,
        binary=True,
    ),
    "cosine": Metric(meaning="The cosine is that of the inferred and the true vector."),
    "flipped": Metric(meaning="Flipped is the share of vectors with the wrong sign.", leak=False, binary=True),
    "held-back": Metric(meaning="Held back is the share of updates that were not sent.", leak=False, binary=True),
    "hr@10": Metric(meaning="HR@10 is the share of held-out items among the first ten.", leak=False, binary=True),
    "mae": Metric(meaning="MAE is the model's mean absolute error.", leak=False, lower_is_better=True),
}
"""Every metric with a direction or a meaning of its own; of others more is better, and no leak."""

JUDGED = ("auc", "l1", "error", "ap")
"""The metric by which each kind of attack is judged: the first of these that it has."""
GUESSES = frozenset(
    {"chance", "popularity", "prior-only", "mean-item", "random-guess", "matching-chance", "uniform-present"}
)
"""What an attack must beat to have inferred anything."""
_READS_THE_UPDATE = frozenset({"uniform-present"})
"""A guess that takes from the update which classes a client has, and calls them equal."""
BASELINES = (GUESSES - _READS_THE_UPDATE) | {
    *("click-entropy", "capacity-bound", "own-vector"),
    *("global-model", "global-model-unrecorded", "central-model"),
}
"""Lines that read no update; they stand next to a table, and in no attack's number."""
PUBLISHED = frozenset(
    {
        *("raifle", "raifle-none", "fgsm", "imia", "pac", "decaf"),
        *("reid-mlp", "reid-svm", "reid-knn", "matching-mlp", "matching-siamese"),
    }
)
"""The papers' own attacks."""


def lower_is_better(metric: str) -> bool:
    """Whether a lower number is the better one."""
    return metric in METRICS and METRICS[metric].lower_is_better


def is_attack(name: str) -> bool:
    """Whether a name in results is an attack, and no baseline, bound or model."""
    return name not in BASELINES | GUESSES


def meanings(metrics: Collection[str]) -> list[str]:
    """A sentence for each of the given metrics that has one."""
    return [metric.meaning for name, metric in METRICS.items() if name in metrics]
