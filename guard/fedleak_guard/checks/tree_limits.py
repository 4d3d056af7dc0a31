"""Trees whose leaves hold too few rows of the site, or that say more than the policy allows."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedleak_guard.check import Check, Measurement, NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy, TreeLimits
from fedleak_guard.site_trees import leaf_counts, require_classes, site_forests, site_rows
from fedleak_recorder.arrays import Array
from fedleak_recorder.trees.forest import LEFT, PADDING, THRESHOLD, Forest


class TreeLimitsCheck(Check):
    """Numbers of the policy's section ``trees`` that a message breaks.

    A server reads the rows and the positive rows of each leaf out of the weights alone, so that masked Hessians change
    nothing here: the guard counts the site's own rows in each leaf. Under the section, a tensor that is no readable
    forest is an error, with which nothing leaves, and so is a limit on rows without the site's rows.
    """

    name = "tree-limits"
    text = "number of the policy's limits on trees that the message breaks"

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "trees" if policy.trees is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        limits = policy.trees
        if message.sent is None or limits is None:
            return None
        forests = list(site_forests(message))
        sentences = list(_faults_of_shape(forests, limits))
        if limits.counts_rows:
            if message.records is None or message.labels is None:
                raise NotMadeError("the site's rows and labels are unknown, which own.data or the message can give")
            sentences += _faults_of_leaves(message, forests, limits)
        sentence = f"{len(sentences)} limits on trees: {'; '.join(sentences)}"
        return Measurement(value=len(sentences), found=bool(sentences), limit=0, sentence=sentence)


def _faults_of_shape(forests: Sequence[Forest], limits: TreeLimits) -> Iterator[str]:
    """Limits that the trees break whatever the site's rows are."""
    count = sum(len(forest.trees) for forest in forests)
    if limits.most_trees is not None and count > limits.most_trees:
        yield f"{count} new trees, where the policy allows {limits.most_trees}"
    deepest = max((forest.depth for forest in forests), default=0)
    if limits.deepest is not None and deepest > limits.deepest:
        yield f"a leaf {deepest} splits below the root, where the policy allows {limits.deepest}"
    digits = limits.threshold_digits
    if digits is not None:
        precise = sum(_more_precise(forest.trees, digits) for forest in forests)
        if precise:
            yield f"{precise} thresholds with more than {digits} decimal places"


def _more_precise(trees: Array, digits: int) -> int:
    """Number of splits whose threshold is no single-precision number nearest to one of so many decimal places."""
    thresholds = trees[trees[:, :, LEFT] >= 0][:, THRESHOLD]
    rounded = np.round(thresholds.astype(np.float64), digits).astype(np.float32)
    return int((rounded != thresholds).sum())


def _faults_of_leaves(message: Message, forests: Sequence[Forest], limits: TreeLimits) -> list[str]:
    """Limits that the numbers of the site's rows in the leaves break."""
    fewest_rows: list[int] = []
    fewest_of_class: list[int] = []
    for forest in forests:
        rows, labels = site_rows(message, forest.features)
        if limits.smallest_class is not None:
            require_classes(labels)
        for tree in forest.trees:
            if tree[0, LEFT] == PADDING:
                continue
            counts = leaf_counts(tree, rows, labels)
            fewest_rows.append(int(counts.rows.min()))
            fewest_of_class.append(counts.smallest_class)
    sentences = []
    for name, least, fewest in (
        ("rows", limits.smallest_leaf, fewest_rows),
        ("rows of one class", limits.smallest_class, fewest_of_class),
    ):
        if least is not None and fewest and min(fewest) < least:
            below = sum(number < least for number in fewest)
            sentences.append(f"{below} trees with a leaf of {min(fewest)} {name}, where the policy asks for {least}")
    return sentences
