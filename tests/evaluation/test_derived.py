"""Results that follow from several cells: interactions needed, and utility under a mitigation."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedleak.evaluation.derived import CEILING, SHARE, derived, shares_of_ceiling
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, records, score_table

POINTS = [1, 3, 10, 32, 100, 316, 1000]
LINES = {"pac": AttackInfo(role="published"), "mean-item": AttackInfo(role="baseline")}
LINES |= {"ours": AttackInfo(role="ours"), "worse": AttackInfo(role="ours")}


def rows(attack: str, factor: float, victims: int = 40) -> list[pd.DataFrame]:
    """Errors ``factor * (1 + v / 100) / sqrt(T)`` of every victim."""
    return [
        score_table(
            attack,
            {"error": [factor * (1 + v / 100) / t**0.5 for v in range(victims)]},
            setting={"data": "d", "interactions": t},
            seed=0,
            victims=range(victims),
        )
        for t in POINTS
    ]


def needed(tables: list[pd.DataFrame]) -> pd.DataFrame:
    return derived(Evaluation(scores=concat(tables), lines=LINES))


def test_a_tenth_of_the_error_needs_a_hundredth_of_the_interactions() -> None:
    table = needed(rows("pac", 1) + rows("ours", 0.1) + rows("mean-item", 0.2))
    assert set(table["attack"]) == {"ours"}  # a baseline needs none
    found = {(r["metric"], r["setting.as_pac_after"]): r for r in records(table)}
    ratio = found["times-fewer", 1000]
    assert found["interactions", 1000]["mean"] == pytest.approx(10, rel=0.1)
    assert ratio["mean"] == pytest.approx(100, rel=0.1)
    assert (ratio["n"], ratio["role"]) == (40, "ours")
    assert ratio["low"] <= ratio["mean"] <= ratio["high"]
    # Better at the first point already: that point's T, and no more is claimed.
    assert found["interactions", 100]["mean"] == 1


def test_the_interval_of_interactions_needed_counts_clients_once_and_varies_with_the_seed() -> None:
    def curves(seeds: int) -> dict[str, Any]:
        tables = [
            score_table(
                attack,
                {"error": [factor * (1 + seed * skew) / t**0.5 for _ in range(40)]},
                setting={"data": "d", "interactions": t},
                seed=seed,
                victims=range(40),
            )
            for seed in range(seeds)
            for t in POINTS
            for attack, factor, skew in (("pac", 1, 0.0), ("ours", 0.1, 0.5))
        ]
        found = {(r["metric"], r["setting.as_pac_after"]): r for r in records(needed(tables))}
        return found["times-fewer", 1000]

    many, one = curves(5), curves(1)
    assert (many["n"], many["seeds"]) == (40, 5)
    assert one["high"] - one["low"] < 1e-6 * one["mean"]  # clients are equal
    assert many["high"] > 1.5 * many["low"]  # seeds are not


def test_an_attack_that_never_gets_there_has_no_number() -> None:
    found = needed(rows("pac", 0.1) + rows("worse", 5))
    assert set(found["attack"]) == {"worse"}
    assert found["mean"].isna().all()


def test_without_the_published_attack_or_an_axis_nothing_follows() -> None:
    assert needed(rows("ours", 1)).empty
    assert needed([score_table("pac", {"error": [0.5]}, setting={"data": "d"}, seed=0, victims=[0])]).empty


@pytest.mark.parametrize(("metric", "better"), [("top5", 0.5), ("mae", 2.0)])
def test_utility_is_the_share_of_the_quality_without_mitigation(metric: str, better: float) -> None:
    """By hand: half of the accuracy is a utility of a half, and half of an error is twice the utility."""
    cells = [("none", 0, [0.4, 0.6]), ("noise", 0.1, [0.2, 0.3])]
    tables = [
        score_table(
            "global-model", {metric: v}, setting={"data": "b", "mitigation": k, "amount": a}, seed=0, victims=[1, 2]
        )
        for k, a, v in cells
    ]
    found = {row["setting.mitigation"]: row for row in records(needed(tables))}
    assert found["none"]["mean"] == pytest.approx(1)
    assert found["noise"]["mean"] == pytest.approx(better)
    assert (found["noise"]["metric"], found["noise"]["n"], found["noise"]["setting.amount"]) == ("utility", 2, 0.1)
    assert not math.isnan(found["noise"]["low"])
    # Clients are 0.8 and 1.2 of their mean, and those with the noise so many times the utility.
    assert (found["none"]["std"], found["noise"]["std"]) == pytest.approx((0.2, 0.2 * better))


ATTRIBUTE_LINES = {
    "ours": AttackInfo(role="ours"),
    "counts": AttackInfo(role="baseline"),
    "forest": AttackInfo(role="published"),
}


def of_attributes(**means: float) -> Evaluation:
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
    return Evaluation(scores=concat(tables), lines=ATTRIBUTE_LINES)


def test_the_share_is_the_gain_over_the_best_baseline_in_parts_of_that_of_the_raw_data() -> None:
    found = {
        row["attack"]: row for row in records(derived(of_attributes(ours=0.8, forest=0.65, counts=0.6, ceiling=0.9)))
    }
    assert set(found) == {"ours", "forest"}  # neither the baseline nor the ceiling, nor what raw data do not say
    assert found["ours"]["mean"] == pytest.approx(0.2 / 0.3)
    assert found["forest"]["mean"] == pytest.approx(0.05 / 0.3)
    assert found["ours"]["metric"] == SHARE
    assert found["ours"]["setting.attribute"] == "gender"
    assert (found["ours"]["n"], found["ours"]["seeds"], found["ours"]["role"]) == (200, 2, "ours")
    # The same noise is in all three AUCs and cancels, but for the floor.
    assert found["ours"]["low"] - 1e-9 <= found["ours"]["mean"] <= found["ours"]["high"] + 1e-9


def test_a_baseline_below_guessing_is_no_floor() -> None:
    (row,) = shares_of_ceiling(of_attributes(ours=0.7, counts=0.4, ceiling=0.9))
    assert row["mean"] == pytest.approx(0.5)


def test_there_is_no_share_without_a_ceiling_or_where_the_raw_data_say_nothing() -> None:
    assert list(shares_of_ceiling(of_attributes(ours=0.8, counts=0.6))) == []
    assert list(shares_of_ceiling(of_attributes(ours=0.6, counts=0.55, ceiling=0.56))) == []
    assert list(shares_of_ceiling(Evaluation())) == []
