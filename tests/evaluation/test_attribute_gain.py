"""The share of what raw data say about people that is in their updates: by hand, and where there is none."""

import numpy as np
import pandas as pd
import pytest

from evaluation.attribute_gain import CEILING, SHARE, shares_of_ceiling
from evaluation.derived import derived
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo, concat, records, score_table

LINES = {"ours": AttackInfo(role="ours"), "counts": AttackInfo(role="baseline"), "forest": AttackInfo(role="published")}


def evaluation(**means: float) -> Evaluation:
    """Two attributes, of 200 people under two seeds, with these mean AUCs of the first and 0.5 for the second."""
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    noise -= noise.mean()
    tables: list[pd.DataFrame] = []
    for seed in range(2):
        for attribute, kept in (("gender", 1.0), ("sign", 0.0)):
            for label, mean in means.items():
                values = 0.5 + kept * (mean - 0.5) + noise
                tables.append(
                    score_table(
                        CEILING if label == "ceiling" else label,
                        {"auc": values},
                        influences={"auc": values},
                        setting={"data": "d", "attribute": attribute},
                        seed=seed,
                        victims=range(200),
                    )
                )
    return Evaluation(scores=concat(tables), lines=LINES)


def test_the_share_is_the_gain_over_the_best_baseline_in_parts_of_that_of_the_raw_data() -> None:
    found = {row["attack"]: row for row in records(derived(evaluation(ours=0.8, forest=0.65, counts=0.6, ceiling=0.9)))}
    assert set(found) == {"ours", "forest"}  # neither the baseline nor the ceiling, nor what raw data do not say
    assert found["ours"]["mean"] == pytest.approx(0.2 / 0.3)
    assert found["forest"]["mean"] == pytest.approx(0.05 / 0.3)
    assert found["ours"]["metric"] == SHARE
    assert found["ours"]["setting.attribute"] == "gender"
    assert (found["ours"]["n"], found["ours"]["seeds"], found["ours"]["role"]) == (200, 2, "ours")
    # The same noise is in all three AUCs and cancels, but for the floor.
    assert found["ours"]["low"] - 1e-9 <= found["ours"]["mean"] <= found["ours"]["high"] + 1e-9


def test_a_baseline_below_guessing_is_no_floor() -> None:
    (row,) = shares_of_ceiling(evaluation(ours=0.7, counts=0.4, ceiling=0.9))
    assert row["mean"] == pytest.approx(0.5)


def test_there_is_no_share_without_a_ceiling_or_where_the_raw_data_say_nothing() -> None:
    assert list(shares_of_ceiling(evaluation(ours=0.8, counts=0.6))) == []
    assert list(shares_of_ceiling(evaluation(ours=0.6, counts=0.55, ceiling=0.56))) == []
    assert list(shares_of_ceiling(Evaluation())) == []
