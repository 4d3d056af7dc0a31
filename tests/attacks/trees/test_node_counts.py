"""Whole numbers of rows from sums and weights of XGBoost itself."""

from typing import Any

import pytest
import torch

from fedleak.attacks.trees.estimates import TreeCountsEstimate
from fedleak.attacks.trees.node_counts import whole
from fedleak.attacks.trees.tree_counts import TreeCounts
from tests.attacks.runs import run


def test_a_number_is_whole_within_an_error_that_shows_it() -> None:
    values = torch.tensor([3.001, 2.2, 5.0])
    assert whole(values, torch.tensor([0.01, 0.01, 0.2])).tolist() == [True, False, False]


@pytest.mark.integration
@pytest.mark.parametrize("reg_lambda", [0, 1])
@pytest.mark.parametrize("depth", [3, 6])
def test_trees_of_xgboost_are_exact(depth: int, reg_lambda: int) -> None:
    pytest.importorskip("xgboost")
    from bench.tree_counts import VARIANTS, tables, view_of

    table = tables(None)["breast cancer"]
    params: dict[str, Any] = {"eta": 0.3, "max_depth": depth, "lambda": reg_lambda, "subsample": 1.0}
    view, truth = view_of(table, params, {})
    for variant, arguments in VARIANTS.items():
        metrics = run(TreeCounts(**arguments), view, TreeCountsEstimate).score(view, truth).metrics
        assert float(metrics["false-certified-nodes"]) == 0
        if reg_lambda or variant == "sums, size":
            assert float(metrics["exact-nodes"]) == 1, variant
    drawn, truth = view_of(table, {**params, "subsample": 0.8}, {})
    for arguments in VARIANTS.values():
        metrics = run(TreeCounts(**arguments), drawn, TreeCountsEstimate).score(drawn, truth).metrics
        assert float(metrics["certified-nodes"]) == 0
