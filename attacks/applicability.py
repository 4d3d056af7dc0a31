"""Which questions cannot be asked of the clients of a view, by the kind of system that the recording holds.

Each function says why a kind of question does not apply, as a clause, and returns None where it applies and where the
recording does not say what the clients train: only what the recording shows excludes a question.
"""

from collections.abc import Collection

from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.last_layer import number_of_outputs
from fedleak.client.network import ClassifierAlgorithm, NetworkAlgorithm
from fedleak.client.one_output import OneOutput
from fedleak.client.pointwise_descent import VoteAlgorithm
from fedleak.client.ranking import RankingAlgorithm
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.view import ITEM_EMBEDDING, View

_ITEMS = (RecommenderAlgorithm, RankingAlgorithm, VoteAlgorithm)
"""Algorithms of clients that are shown items and learn from what they do with them."""
_OF_RECORDS = frozenset({"class_counts", "target_mean", "words"})
"""Ground truth that only clients have who train on records of their own: labelled examples, or texts."""
_INTERACTIONS = "labels"
"""Ground truth of which shown items a client interacted with."""
_EXAMPLES = ("images", "prior_features")
"""Auxiliary data that are examples like those of the clients."""
_IMAGE = 4
"""Dimensions of a batch of images."""


def without_shown_items(view: View, truth: Collection[str]) -> str | None:
    """Why a question about items that the server shows does not apply; `truth` has the names in the ground truth."""
    shows = view.served is not None or bool(view.row_parameters) or ITEM_EMBEDDING in {*view.model, *view.deltas}
    if shows or isinstance(view.algorithm, _ITEMS) or _INTERACTIONS in truth:
        return None
    if isinstance(view.algorithm, ExampleAlgorithm) or _OF_RECORDS & {*truth}:
        return "the clients train on records of their own, and the server shows them no items"
    return None


def without_records(view: View, truth: Collection[str]) -> str | None:
    """Why a question about the records that clients train on does not apply."""
    if isinstance(view.algorithm, _ITEMS) and not _OF_RECORDS & {*truth}:
        return "the clients have no records but the items that the server shows them, about which other questions ask"
    return None


def without_texts(view: View, truth: Collection[str]) -> str | None:
    """Why a question about texts does not apply."""
    if "words" in truth:
        return None
    if "columns" in view.auxiliary or isinstance(view.algorithm, TreesAlgorithm):
        return "the clients train on rows of a table"
    examples = [view.auxiliary[name] for name in _EXAMPLES if name in view.auxiliary]
    if isinstance(view.algorithm, ImageClassifierAlgorithm) or any(batch.dim() == _IMAGE for batch in examples):
        return "the clients train on images"
    return without_records(view, truth)


def without_sums(view: View, truth: Collection[str]) -> str | None:  # noqa: ARG001
    """Why a question about sums of updates does not apply; the ground truth does not matter."""
    summed = view.participants is not None or any(release.participants > 1 for release in view.releases)
    if summed:
        return None
    return "the server receives the update of each client by itself"


def without_classes(view: View, truth: Collection[str]) -> str | None:
    """Why a question about the share of each class does not apply."""
    if isinstance(view.algorithm, ClassifierAlgorithm):
        return None
    if not isinstance(view.algorithm, _ITEMS) and number_of_outputs(view) == 1:
        return "the network has a single output, so the share of positive examples or the mean target is asked instead"
    if "target_mean" in truth and "class_counts" not in truth:
        return "the clients' examples have numbers as targets, and no classes"
    return without_records(view, truth)


def without_one_output(view: View, truth: Collection[str], *, binary: bool) -> str | None:
    """Why a question about the only output of a network does not apply.

    Args:
        view: what the server saw.
        truth: names in the ground truth.
        binary: whether the question is about a logit of two classes, instead of the mean of a regression.
    """
    outputs = None
    if not isinstance(view.algorithm, _ITEMS):
        outputs = number_of_outputs(view)
    if isinstance(view.algorithm, ClassifierAlgorithm) or (outputs is not None and outputs > 1):
        return "the network has several outputs"
    # The loss of the learner decides; without one, the ground truth does, where it has either classes or targets.
    head = None
    if isinstance(view.algorithm, NetworkAlgorithm):
        head = OneOutput.of(view.algorithm)
    has_classes = "class_counts" in truth
    has_targets = "target_mean" in truth
    learns_classes: bool | None = None
    if head is not None:
        learns_classes = head.binary
    elif has_classes != has_targets:
        learns_classes = has_classes
    if learns_classes is not None and learns_classes != binary:
        if learns_classes:
            return "the clients' examples have two classes, and no numbers as targets"
        return "the clients' examples have numbers as targets, and no classes"
    return without_records(view, truth)
