"""Likes and dislikes: what is liked, what is held out, who is left out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.movielens import MovieLens
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from tests.datamodules.refusals import refused
from tests.places import REAL

# user, item, stars, time: user 1 likes 10, 30; user 2 likes nothing; user 3 likes 20, 40 and dislikes 10, rated last.
LINES = ["1\t10\t4\t1", "1\t20\t3\t2", "1\t30\t5\t3", "2\t10\t1\t1", "3\t20\t5\t1", "3\t40\t4\t2", "3\t10\t2\t3"]


def liked(root: Path, **arguments: Any) -> MovieLens:
    (root / "ml-100k").mkdir(exist_ok=True)
    (root / "ml-100k" / "u.data").write_text("\n".join(LINES) + "\n")
    return MovieLens(root=str(root), preferences="liked", **arguments)


def test_likes_are_four_stars_and_dislikes_the_other_ratings(tmp_path: Path) -> None:
    data = liked(tmp_path, degenerate_users="drop", holdout=False)
    cohort = data.cohort(0)
    assert cohort.rows[ITEM_EMBEDDING].tolist() == [[0, 1, 2], [0, 1, 3]]
    assert cohort.examples["label"].tolist() == [[1, 0, 1], [0, 1, 1]]


def test_the_last_liked_item_is_held_out(tmp_path: Path) -> None:
    data = liked(tmp_path, degenerate_users="drop", evaluation_negatives=None)
    cohort = data.cohort(0)
    assert cohort.rows[ITEM_EMBEDDING].tolist() == [[0, 1], [0, 1]]
    assert cohort.examples["label"].tolist() == [[1, 0], [0, 1]]
    batch = next(iter(data.val_dataloader()))
    assert batch["items"][batch["target"]].tolist() == [2, 3]
    # Neither what a user liked nor what it disliked is a candidate.
    assert batch["items"].tolist() == [[2, 3], [2, 3]]


def test_a_user_who_likes_nothing_is_refused_or_left_out(tmp_path: Path) -> None:
    refused(liked(tmp_path), "user 1 .* 0 of 4")


def test_users_with_too_few_labels_are_left_out(tmp_path: Path) -> None:
    assert liked(tmp_path, degenerate_users="drop", holdout=False, fewest_labels=3).num_clients == 2
    refused(liked(tmp_path, degenerate_users="drop", holdout=False, fewest_labels=4), "at least 4")


@pytest.mark.parametrize("rate", [0.4, 0.45, 0.2])
def test_a_fraction_of_negatives_gives_a_rate_of_likes_just_below(rate: float) -> None:
    data = SyntheticRecommender(users=40, items=300, mean_interactions=20, negatives_per_positive=(1 - rate) / rate)
    cohort = data.cohort(0)
    rates = cohort.examples["label"].sum(1) / cohort.counts
    assert float(rates.max()) <= rate + 1e-6
    assert bool((rates * cohort.counts + rate >= rate * cohort.counts).all())
    assert float(rates.mean()) == pytest.approx(rate, abs=0.01)


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "ml-100k").is_dir(), reason="the real data are not here")
def test_real_users_like_more_than_half_of_what_they_rate() -> None:
    data = MovieLens(root=str(REAL), preferences="liked", holdout=False, degenerate_users="drop")
    cohort = data.build_cohort(0, torch.arange(data.num_clients))
    rates = (cohort.examples["label"].sum(1) / cohort.counts).numpy()
    assert (data.num_clients, int(cohort.counts.sum()), int(cohort.examples["label"].sum())) == (942, 99_980, 55_375)
    assert (int((rates < 0.5).sum()), int((rates == 0.5).sum())) == (301, 16)
    assert np.isclose(np.median(rates), 0.589, atol=0.01)
