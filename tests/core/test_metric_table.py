"""Each metric of this project says between which values it lies."""

import importlib
import math
import pkgutil

import pytest

from fedleak import evaluation
from fedleak import tables as experiments
from fedleak.core.metric import Metric
from fedleak.core.metric_table import METRICS
from fedleak.evaluation.registry import REGISTRY


def every_metric() -> list[Metric]:
    """Metrics of the table, of estimates, and of what evaluations and tables add."""
    for package in (evaluation, experiments):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    assert REGISTRY
    # Other tests may have added metrics from outside.
    return [entry for entry in METRICS.values() if entry.meaning and not entry.name.startswith(("my-", "test-"))]


@pytest.mark.inventory
def test_every_metric_declares_its_span() -> None:
    assert [entry.name for entry in every_metric() if entry.span is None] == []


@pytest.mark.inventory
def test_the_span_of_a_share_a_rate_or_a_correlation_is_bounded_at_both_ends() -> None:
    bounded = ("is the share of", "is the part of", "auc", "f1 ", "correlation", "cosine", "precision")
    unbounded = {"bits-share", "share-of-ceiling"}  # negative where an update says less than nothing, or noise does
    for entry in every_metric():
        named = any(word in entry.meaning.lower() for word in bounded)
        ratio = entry.name in unbounded or entry.name.startswith("times-")
        if entry.binary or (named and not ratio):
            assert entry.span is not None
            assert all(map(math.isfinite, entry.span)), entry.name


@pytest.mark.inventory
def test_guessing_and_certainty_of_a_metric_that_judges_attacks_lie_within_its_span() -> None:
    for entry in every_metric():
        least, most = entry.span or (math.nan, math.nan)
        if entry.judged:
            assert least <= entry.certainty <= most, entry.name
        if entry.guessing is not None:
            assert least <= entry.guessing <= most, entry.name
