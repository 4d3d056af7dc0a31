"""Rows of a site in the leaves of XGBoost's trees, and what a model holds besides them."""

import json

import numpy as np
import pytest

from fedleak_guard.site_trees import beside_trees, leaf_counts
from fedleak_recorder.trees import read_forest
from tests.tree_toys import as_ubj, model_values


def test_rows_end_in_the_leaves_that_xgboost_says() -> None:
    xgboost = pytest.importorskip("xgboost")
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(500, 4))
    labels = (rows[:, 0] * rows[:, 1] > 0).astype(int)
    # Missing values, of which some are in columns that the trees split.
    rows[draws.random(rows.shape) < 0.1] = np.nan
    table = xgboost.DMatrix(rows, labels)
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 4}, table, 3)
    leaves = booster.predict(table, pred_leaf=True)
    forest = read_forest(bytes(booster.save_raw("ubj")))
    for number, tree in enumerate(forest.trees):
        counts = leaf_counts(tree, rows, labels)
        expected = [
            (int(sum(leaves[:, number] == leaf)), int(labels[leaves[:, number] == leaf].sum()))
            for leaf in np.unique(leaves[:, number])
        ]
        actual = list(zip(counts.rows.tolist(), counts.positives.tolist(), strict=True))
        # XGBoost numbers its leaves otherwise.
        assert sorted(actual) == sorted(expected)
        assert counts.smallest_class == min(min(m, n - m) for n, m in expected)


@pytest.mark.parametrize("as_bytes", [lambda values: json.dumps(values).encode(), as_ubj])
def test_all_but_the_trees_is_besides_them(as_bytes: object) -> None:
    values = model_values()
    trees = values["learner"]["gradient_booster"]["model"]["trees"]
    trees[1]["losses"] = [0.25, 0.5]
    assert callable(as_bytes)
    rest = beside_trees(as_bytes(values))["learner"]
    assert rest["gradient_booster"]["model"]["trees"] == [{}, {"losses": [0.25, 0.5]}, {}]
    assert rest["feature_names"] == ["age [years]", "{\u00e9"]
    assert "base_score" not in rest["learner_model_param"]
