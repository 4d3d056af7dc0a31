"""A leak is shown on the clients of a recording where coin tosses would hardly do as well."""

import math

import numpy as np
import pytest

from fedleak.evaluation.luck import luck, with_luck
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.result_names import LUCK
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.summary import summarise

NOTHING = np.empty(0)
LINES = {
    "ours": AttackInfo(role="ours", question="q"),
    "weak": AttackInfo(role="baseline", question="q"),
    "strong": AttackInfo(role="baseline", question="q"),
    "other": AttackInfo(role="baseline", question="another"),
}


def differences(values: list[float], influences: np.ndarray = NOTHING) -> MeanOverClients:
    of_clients = np.array(values)
    ones = np.ones(len(of_clients))
    return MeanOverClients(float(of_clients.mean()), of_clients, ones, (-1, 1), NOTHING, influences)


def test_it_is_the_share_of_signs_that_give_as_much() -> None:
    assert luck(differences([0.1] * 5)) == 1 / 32
    assert luck(differences([0.3, -0.1])) == 2 / 4  # with the first sign as it is
    assert luck(differences([-0.1] * 5)) == 1.0
    assert luck(differences([-0.1] * 5), sign=-1) == 1 / 32
    assert luck(differences([0.0] * 5)) == 1.0


def test_one_exposed_client_is_no_proof() -> None:
    assert luck(differences([1.0] + [0.0] * 39)) == 0.5
    assert luck(differences([1.0] * 3 + [0.0] * 2000)) == 1 / 8


def test_of_many_clients_it_is_drawn_and_never_zero() -> None:
    assert 0 < luck(differences([0.1] * 40)) <= 1e-4
    assert luck(differences([0.1] * 2000)) < 1e-6


def test_guesses_are_rarely_shown() -> None:
    draw = np.random.default_rng(0)
    shown = sum(luck(differences(list(draw.normal(size=12)))) <= 0.05 for _ in range(400))
    assert shown <= 34  # 20 are expected


def test_clients_who_affect_each_other_have_a_t_test() -> None:
    influences = np.array([0.2, 0.4, 0.3, 0.3])
    error = influences.std(ddof=1) / 2
    assert luck(differences([0.3] * 4, influences)) == pytest.approx(_t_tail(0.3 / error, 3), rel=1e-3)


def _t_tail(value: float, degrees: int) -> float:
    """Probability that a t variable is larger, by summing its density."""
    points = np.linspace(value, value + 400, 2_000_001)
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    density = scale * (1 + points**2 / degrees) ** (-(degrees + 1) / 2)
    return float(np.trapezoid(density, points))


def test_results_have_it_against_the_best_baseline_of_their_question_and_guessing() -> None:
    draw = np.random.default_rng(0)
    base = draw.uniform(0.4, 0.8, 12)
    values = {"ours": base + 0.1, "weak": base - 0.2, "strong": base, "other": base + 0.2}
    tables = [
        score_table(name, {"auc": own}, setting={"data": "d"}, seed=0, victims=range(12))
        for name, own in values.items()
    ]
    evaluation = Evaluation(scores=concat(tables), lines=LINES)
    found = with_luck(summarise(evaluation), evaluation.scores).set_index("attack")[LUCK]
    assert found["ours"] == pytest.approx(luck(differences(list(values["ours"] - 0.5))))  # larger than of the baseline
    assert found.drop("ours").isna().all()


def test_without_a_comparison_nothing_is_known() -> None:
    scores = score_table("ours", {"l1": [0.1] * 12}, setting={"data": "d"}, seed=0, victims=range(12))
    evaluation = Evaluation(scores=scores, lines=LINES)
    assert with_luck(summarise(evaluation), scores)[LUCK].isna().all()
