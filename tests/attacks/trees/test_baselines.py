"""Baselines of attacks on trees: their rows are the adversary's, and another client's tree counts nothing."""

import torch

from fedleak.attacks.trees import EvenCounts, MajorityFields, OwnColumns, OwnRows, UnrelatedTree
from fedleak.attacks.trees.estimates import TreeCountsEstimate
from fedleak.attacks.trees.row_estimates import TreeRowsEstimate
from fedleak.attacks.trees.toy import SIZES, rounds_toy, toy
from fedleak.client.auxiliary_images import IMAGES, LABELS
from tests.attacks.runs import run


def test_each_client_has_as_many_rows_as_it_reports() -> None:
    view, _ = rounds_toy()
    known = {tuple(row) for row in view.auxiliary[IMAGES].tolist()}
    for attack in (OwnRows(), OwnColumns(), MajorityFields()):
        estimate = run(attack, view, TreeRowsEstimate)
        assert estimate.count.tolist() == list(SIZES)
        assert not bool(estimate.certified.any())
    rows = run(OwnRows(), view, TreeRowsEstimate).client(0).rows
    assert {tuple(row) for row in rows.tolist()} <= known


def test_columns_have_the_values_of_the_adversary() -> None:
    view, _ = rounds_toy()
    rows = run(OwnColumns(), view, TreeRowsEstimate).client(2).rows
    for column in range(rows.shape[1]):
        assert set(rows[:, column].tolist()) <= set(view.auxiliary[IMAGES][:, column].tolist())


def test_the_majority_row_is_the_median() -> None:
    view, _ = rounds_toy()
    estimate = run(MajorityFields(), view, TreeRowsEstimate)
    medians = view.auxiliary[IMAGES].median(0).values.double()
    assert torch.equal(estimate.client(0).rows, medians.expand(SIZES[0], -1))
    assert set(estimate.client(0).labels.tolist()) == {int(view.auxiliary[LABELS].mode().values)}


def test_another_clients_tree_and_equal_shares_count_nothing() -> None:
    view, truth = toy()
    for attack in (UnrelatedTree(), EvenCounts()):
        metrics = run(attack, view, TreeCountsEstimate).score(view, truth).metrics
        assert float(metrics["exact-nodes"].mean()) < 0.05
        assert float(metrics["false-certified-nodes"].sum()) == 0
