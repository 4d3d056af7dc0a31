"""What of a message looks like rows, texts or statistics of people, whatever its tensors are called."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedleak_guard.check import Check, Measurement
from fedleak_guard.checks.metric_values import is_count
from fedleak_guard.message import Message
from fedleak_guard.plain_message import NoNumber, is_row_of_bytes
from fedleak_guard.policy import Action, Policy
from fedleak_guard.site_trees import beside_trees
from fedleak_recorder.arrays import Array
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.linting import linted
from fedleak_recorder.lint.settings import Settings


class MessageLint(Check):
    """Parts that are more than an update: rows of the data, one value for each record, counts, Hessians, centroids.

    It looks at tensors that differ from the received ones, and at metrics that `metrics.counts` does not name, which
    are `metric-values`' own. Where the policy has a section ``trees``, trees are `tree-limits`' own, and the rest of a
    model is looked at. What only a size or a name makes possible is no finding here.
    """

    name = "message-lint"
    text = "number of parts that look like rows, counts or statistics of people"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "log")

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        return message.sent is not None or bool(message.metrics)

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None and not message.metrics:
            return None
        metrics = _numbers_in(message.metrics, policy, "")
        tensors: dict[str, Any] = {**_changed_tensors(message)}
        allowed = {*policy.lint.allowed}
        if policy.trees is not None:
            # The trees are those limits' own; what else a model holds is looked at as any part.
            allowed.add("trees")
            tensors = {name: _beside_trees(value) for name, value in tensors.items()}
        parts = {"tensors": tensors, "metrics": metrics}
        findings = []
        for finding in linted(AnyMessage.of(parts, examples=message.examples), Settings(policy.lint.minimum)):
            if finding.kind not in allowed and finding.how_sure != "possible":
                findings.append(finding)
        sentences = "; ".join(f"{finding.kind}: {finding.sentence[:120]}" for finding in findings[:3])
        sentence = f"{len(findings)} parts that look like more than an update: {sentences}"
        return Measurement(value=len(findings), found=bool(findings), limit=0, sentence=sentence)


def _changed_tensors(message: Message) -> dict[str, Array]:
    """Tensors that are not the received ones: what the server sent is nothing of the site."""
    received = message.model
    changed = {}
    for name, value in message.tensors.items():
        before = received.get(name)
        is_same = message.holds == "models" and before is not None and np.array_equal(before, value)
        if not is_same:
            changed[name] = value
    return changed


def _beside_trees(value: Array) -> Any:
    """What a model of trees holds besides them; another tensor as it is."""
    if not is_row_of_bytes(value):
        return value
    return beside_trees(value.tobytes())


def _numbers_in(metrics: Mapping[str, Any], policy: Policy, prefix: str) -> dict[str, Any]:
    """Metrics without those that the policy names as counts, and without what is no number."""
    numbers: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            numbers[key] = _numbers_in(value, policy, f"{name}.")
        elif not is_count(name, policy.metrics) and not _has_no_number(value):
            numbers[key] = value
    return numbers


def _has_no_number(value: Any) -> bool:
    """Whether something in a metric is no number, which `metric-values` refuses."""
    if isinstance(value, list):
        return any(map(_has_no_number, value))
    return isinstance(value, NoNumber)
