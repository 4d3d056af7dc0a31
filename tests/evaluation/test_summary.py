"""Intervals count people, not the seeds that each was trained under, and differences are paired."""

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedleak.attacks.matching.estimates import MatchingEstimate
from fedleak.core.history import History
from fedleak.core.scoring import clopper_pearson
from fedleak.core.seeding import generator_for
from fedleak.evaluation import summary
from fedleak.evaluation.message_selection import draw_pairs
from fedleak.evaluation.paired_means import clusters
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, Role, concat, records, score_table

ROLES: dict[Role, tuple[str, ...]] = {
    "ours": ("ours", "decaf-match", "matching-fingerprint"),
    "published": ("raifle", "decaf"),
    "baseline": ("chance", "popularity", "random-guess", "equal-counts", "matching-chance"),
}
LINES = {name: AttackInfo(role=role, question="q") for role, names in ROLES.items() for name in names}


def rows(
    attack: str, metric: str, values: Sequence[float], *, seed: int = 0, people: Sequence[int] = (), number: int = 0
) -> pd.DataFrame:
    """A value of each person, who has another pseudonym in every training."""
    people = people or range(len(values))
    victims = [1000 * seed + person for person in people]
    return score_table(
        attack, {metric: values}, setting={"data": "d"}, seed=seed, victims=victims, people=people, round=number
    )


def summarise(*tables: pd.DataFrame) -> list[SimpleNamespace]:
    return _named(summary.summarise(Evaluation(scores=concat(tables), lines=LINES)))


def paired_differences(*tables: pd.DataFrame) -> list[SimpleNamespace]:
    return _named(summary.paired_differences(Evaluation(scores=concat(tables), lines=LINES)))


def _named(table: pd.DataFrame) -> list[SimpleNamespace]:
    return [SimpleNamespace(**record, ci95=(record["low"], record["high"])) for record in records(table)]


def test_clients_who_share_their_items_are_one_unit() -> None:
    """Ten sets of items with 20 clients each: the mean varies as that of ten values, not as that of 200."""
    sets = 0.5 + 0.1 * torch.randn(10, 1, generator=generator_for(0, "sets"))
    values = sets + torch.randn(10, 20, generator=generator_for(0, "own")) * 0.01
    of_sets = [
        rows("ours", "auc", v.tolist(), people=range(20 * i, 20 * i + 20), number=i) for i, v in enumerate(values)
    ]
    (clustered,), (independent,) = summarise(*of_sets), summarise(rows("ours", "auc", values.flatten().tolist()))
    assert clustered.n == independent.n == 200
    assert clustered.mean == pytest.approx(independent.mean)
    assert clustered.std == pytest.approx(independent.std)
    alone = summarise(rows("ours", "auc", values.mean(1).tolist()))[0]
    assert clustered.ci95 == pytest.approx(alone.ci95)
    assert clustered.high - clustered.low > 2.5 * (independent.high - independent.low)


def test_clients_of_several_rounds_are_no_groups() -> None:
    once = [rows("ours", "auc", [0.1, 0.2, 0.3], people=range(n, 9, 3), number=n) for n in range(3)]
    assert clusters(concat(once)).tolist() == [0] * 3 + [1] * 3 + [2] * 3  # type: ignore[union-attr]
    assert clusters(concat([*once, rows("ours", "auc", [0.5], number=1)])) is None
    assert clusters(concat([rows("ours", "auc", [0.5], people=[n], number=n) for n in range(4)])) is None


def test_one_person_under_three_seeds_is_one_person() -> None:
    values = torch.rand(60, generator=generator_for(0, "people")).tolist()
    seeds = [rows("direction", "auc", values, seed=seed) for seed in range(3)]
    (alone,), (repeated,) = summarise(seeds[0]), summarise(*seeds)
    assert (alone.n, alone.seeds, repeated.n, repeated.seeds) == (60, 1, 60, 3)
    assert repeated.mean == pytest.approx(alone.mean)
    # The same values again say nothing new; as other people's they would narrow the interval by the root of three.
    width, before = (ends[1] - ends[0] for ends in (repeated.ci95, alone.ci95))
    assert width == pytest.approx(before, rel=0.15)


def test_rounds_are_averaged_and_a_pseudonym_is_the_person_where_nothing_else_is_known() -> None:
    rounds = [rows("direction", "auc", [value], people=[1], number=n) for n, value in enumerate((0.2, 0.4))]
    other = score_table("direction", {"auc": [0.9]}, setting={"data": "d"}, seed=0, victims=[77])
    (result,) = summarise(*rounds, other)
    assert result.n == 2
    assert result.mean == pytest.approx(0.6)


def test_a_person_under_one_of_two_seeds_counts_where_clients_affect_each_other() -> None:
    values = ([0.2, 0.4, 0.9], [0.4, 0.6])
    tables = [
        score_table(
            "ours", {"auc": own}, setting={"data": "d"}, seed=seed, victims=range(len(own)), influences={"auc": own}
        )
        for seed, own in enumerate(values)
    ]
    (found,) = summarise(*tables)
    assert (found.n, found.mean) == (3, pytest.approx(0.5))
    assert found.std == pytest.approx(float(torch.tensor([0.3, 0.5, 0.9]).std()))


def of_trainings(values: torch.Tensor, metric: str = "bits") -> SimpleNamespace:
    """Result of ``(people, trainings)`` values, NaN where a person took no part."""
    tables = [rows("ours", metric, column.tolist(), seed=seed) for seed, column in enumerate(values.T)]
    (found,) = summarise(*tables)
    return found


def test_what_differs_between_models_widens_the_interval() -> None:
    generator = generator_for(0, "models")
    of_people, of_seeds = torch.randn(50, 1, generator=generator) * 0.1, torch.tensor([[-1.0, 0.0, 1.0, 2.0]])
    crossed, alone = of_trainings(of_people + of_seeds), of_trainings(of_people)
    assert crossed.mean == pytest.approx(alone.mean + 0.5)
    assert crossed.high - crossed.low > 3 * (alone.high - alone.low)
    assert (crossed.n, crossed.seeds) == (50, 4)


@pytest.mark.integration
def test_the_interval_covers_the_mean_of_all_models_and_people() -> None:
    covered = 0
    for trial in range(60):
        generator = generator_for(trial, "trial")
        people, models = torch.randn(30, 1, generator=generator), torch.randn(1, 4, generator=generator)
        found = of_trainings(people + models + torch.randn(30, 4, generator=generator))
        covered += found.low <= 0 <= found.high
    assert covered >= 54  # by people and seeds as one sample it is about half as often


def test_values_that_are_missing_are_left_out() -> None:
    found = of_trainings(torch.tensor([[1.0, torch.nan], [3.0, 5.0], [torch.nan, torch.nan]]))
    assert found.n == 2
    assert found.mean == pytest.approx(3.0)
    nothing = of_trainings(torch.full((2, 3), torch.nan))
    assert (nothing.n, math.isnan(nothing.low)) == (0, True)


def test_people_who_are_each_under_a_seed_of_their_own_are_a_plain_sample() -> None:
    values = torch.diag(torch.arange(1.0, 6.0)).masked_fill(torch.eye(5) == 0, torch.nan)
    assert of_trainings(values).ci95 == of_trainings(torch.arange(1.0, 6.0)[:, None]).ci95


def test_a_success_of_all_is_no_certainty() -> None:
    assert clopper_pearson(200, 200) == pytest.approx((0.025 ** (1 / 200), 1.0))
    (all_of_them,) = summarise(rows("pac", "success", [1.0] * 200))
    assert all_of_them.ci95 == pytest.approx((0.98172, 1.0), abs=1e-4)
    (none,) = summarise(*(rows("pac", "success", [0.0] * 20, seed=seed) for seed in range(2)))
    assert none.ci95 == pytest.approx((0.0, 0.16843), abs=1e-4)  # of 20 people, not of 40
    (certain,) = summarise(rows("direction", "auc", [1.0] * 20))
    assert certain.ci95 == pytest.approx((0.83157, 1.0), abs=1e-4)  # equal values of any metric with a span


def test_differences_are_taken_on_the_same_people() -> None:
    ease = torch.rand(40, generator=generator_for(0, "ease"))
    scores = {"ours": (0.05 + ease).tolist(), "raifle": ease.tolist(), "chance": [0.5] * 40, "popularity": [0.4] * 40}
    tables = [rows(name, "auc", values) for name, values in scores.items()]
    tables += [rows("raifle", "auc", [5.0], people=[99]), rows("ours", "f1", [0.5])]  # nobody else scored these
    found = {(one.attack, one.against): one for one in paired_differences(*tables)}
    assert set(found) == {("ours", "chance"), ("ours", "raifle"), ("raifle", "chance")}
    paired = found["ours", "raifle"]
    assert (paired.n, paired.seeds, paired.metric) == (40, 1, "auc")
    assert paired.mean == pytest.approx(0.05)
    assert paired.ratio_low < paired.ratio < paired.ratio_high
    widths = {one: found[one].ci95[1] - found[one].ci95[0] for one in (("ours", "raifle"), ("ours", "chance"))}
    assert widths["ours", "raifle"] < 0.9 * widths["ours", "chance"]  # although each by itself has a wide interval


def test_of_distances_the_best_guess_is_the_nearest() -> None:
    scores = {"decaf-match": 0.1, "decaf": 0.3, "random-guess": 0.9, "equal-counts": 0.4}
    tables = [rows(name, "l1", [score] * 4) for name, score in scores.items()]
    found = {(one.attack, one.against): one.mean for one in paired_differences(*tables)}
    assert found == {
        ("decaf-match", "equal-counts"): pytest.approx(-0.3),
        ("decaf-match", "decaf"): pytest.approx(-0.2),
        ("decaf", "equal-counts"): pytest.approx(-0.1),
    }


def one_ranking(trial: int) -> pd.DataFrame:
    """Random scores of the pairs of 16 users, four messages on either side, as matching scores them."""
    generator = generator_for(trial, "pairs")
    sent = torch.arange(16).repeat_interleave(4)
    pairs = draw_pairs(torch.arange(64), torch.arange(64, 128), torch.cat([sent, sent]), each=4, generator=generator)
    every = torch.arange(64)
    own = History(round=0, pseudonyms=every, example_counts=every, deltas={}, model={}, sent_in=0 * every)
    view = dataclasses.replace(own, known=own, pairs=pairs)
    estimate = MatchingEstimate(scores=torch.rand(len(pairs), generator=generator))
    found = estimate.score(view, {"user": sent, "known_user": sent})
    return score_table(
        "matching-chance",
        {"ap": found.metrics["ap"]},
        setting={},
        seed=0,
        victims=found.units,  # type: ignore[arg-type]
        influences={"ap": found.influences["ap"]},
    )


@pytest.mark.integration
def test_users_who_share_one_ranking_are_no_independent_sample() -> None:
    covered = 0
    for trial in range(30):
        ranking = one_ranking(trial)
        (shared,), (apart,) = summarise(ranking), summarise(ranking.assign(influence=np.nan))
        assert shared.mean == apart.mean
        assert shared.std == pytest.approx(apart.std)
        assert (shared.n, apart.n) == (16, 16)
        covered += shared.ci95[0] <= 0.504 <= shared.ci95[1]  # a random order has a little more than a half
        assert apart.ci95[1] - apart.ci95[0] <= shared.ci95[1] - shared.ci95[0]
    assert covered >= 27


def test_a_difference_is_drawn_by_the_influences_of_both() -> None:
    ranking = one_ranking(0)
    values, influences = ranking["value"] + 0.1, ranking["influence"] + 0.1
    better = ranking.assign(attack="matching-fingerprint", value=values, influence=influences)
    (found,) = paired_differences(ranking, better)
    assert found.mean == pytest.approx(0.1)
    assert found.ci95 == pytest.approx(of_equal_differences(0.1, 16))


def of_equal_differences(gap: float, people: int) -> tuple[float, float]:
    """Interval of equal differences of a metric from 0 to 1."""
    left = 1 - 0.025 ** (1 / people)
    return gap - left * (1 + gap), gap + left * (1 - gap)


def test_settings_keep_their_types_where_some_cells_lack_them() -> None:
    cells: list[dict[str, Any]] = [
        {"data": "d", "queries": 4},
        {"data": "d", "epsilon": "inf", "participants": 10},
        {"data": "d"},
    ]
    tables = [score_table("ours", {"auc": [0.5]}, setting=cell, seed=0, victims=[1]) for cell in cells]
    found = summary.summarise(Evaluation(scores=concat(tables), lines=LINES))
    assert found["setting.queries"].tolist() == [4, None, None]
    assert [type(value) for value in found["setting.participants"]] == [type(None), int, type(None)]
