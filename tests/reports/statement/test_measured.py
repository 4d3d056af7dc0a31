from typing import Any

import pytest

from fedleak.evaluation.luck import with_luck
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, Role, concat, score_table
from fedleak.evaluation.summary import summarise
from fedleak.reports.statement.measured import measured, names_of
from fedleak.reports.statement.measured_content import Measured
from fedleak.reports.statement.system_file import Declaration
from tests.places import FILLED_SYSTEM

ATTACKS = [kind() for kind in REGISTRY.values()]


@pytest.mark.parametrize(
    ("family", "label", "name", "active", "letter"),
    [
        ("recommendation", "raifle", "raifle", False, "C"),
        ("recommendation", "raifle+prior", "raifle", False, "C"),
        ("ranking", "codebook", "codebook", True, "F"),
        ("ranking", "ranking/codebook+prior", "codebook+prior", True, "F"),
        ("record-membership", "candidate-fit", "candidate-fit", False, "D"),
        ("record-membership", "candidate-fit", "candidate-fit", True, "G"),
        ("interactions", "popularity", "popularity", True, None),
        ("recommendation", "not-known", "not-known", False, None),
    ],
)
def test_letter_is_that_of_an_active_adversary_if_the_server_deviated(
    family: str, label: str, name: str, active: bool, letter: str | None
) -> None:
    evaluation = Evaluation(lines={label: AttackInfo(name=name, family=family, active=active)})
    assert names_of({"family": family, "attack": label}, ATTACKS, evaluation).letter == letter


def evaluated(values: dict[str, dict[str, list[float]]], family: str, lines: dict[str, str]) -> Evaluation:
    """Scores of attacks of one family by metric, with the question of each."""
    tables = [
        score_table(label, metrics, setting={"data": "d"}, seed=0, victims=[*range(len(next(iter(metrics.values()))))])
        for label, metrics in values.items()
    ]
    kinds = {kind.name: kind for kind in REGISTRY.values() if kind.family == family}
    found = Evaluation(scores=concat(tables))
    for label, question in lines.items():
        role: Role = "baseline" if kinds[label].baseline else "ours"
        found.lines[label] = AttackInfo(role=role, family=family, question=question, tells="something")
    return found


def result(evaluation: Evaluation, **given: Any) -> list[Measured]:
    system = Declaration.read(FILLED_SYSTEM, ("recommendation", "composition")).system
    results = with_luck(summarise(evaluation), evaluation.scores)
    return measured(results, evaluation, system, attacks=ATTACKS, seed=0, **given)


def test_a_system_whose_worse_half_is_known_shows_the_worse_half() -> None:
    """A mean AUC of 0.75 hides that everything is known of half of the clients, and nothing of the others."""
    half = [1.0] * 10 + [0.5] * 10
    values = {"direction": {"auc": half}, "popularity": {"auc": [0.6] * 20}}
    lines = dict.fromkeys(("direction",), "InteractionEstimate")
    evaluation = evaluated(values, "recommendation", lines)
    evaluation.lines["popularity"] = AttackInfo(role="baseline", family="interactions", question="InteractionEstimate")
    (one,) = result(evaluation)
    assert (one.certain, one.n, one.answer) == (10, 20, "yes")
    assert one.worst_tenth is not None
    assert one.worst_tenth.value == 1
    assert "in 75 of 100 cases" in one.everyday
    assert "for 10 of them without an error by this measure" in one.everyday
    assert "For the 5 clients about whom most is inferred: 100 (without the update: 60)." in one.everyday


def test_metric_by_which_most_is_inferred_counts() -> None:
    """No example is recovered exactly, and most are recognised."""
    by_chance = {"identified-by-chance": [0.1] * 8}
    values = {"inverting-gradients": {"recovered": [0.0] * 8, "identified": [0.9, 0.8] * 4, **by_chance}}
    (one,) = result(evaluated(values, "reconstruction", {"inverting-gradients": "ReconstructionEstimate"}))
    assert (one.metric, one.answer) == ("identified", "yes")
    assert [other.metric for other in one.others] == ["recovered"]


def test_questions_of_one_family_are_measured_each() -> None:
    values = {"ilrg": {"l1": [0.1, 0.2] * 4}, "target-mean": {"mean-error": [3.0, 4.0] * 4}}
    lines = {"ilrg": "CompositionEstimate", "target-mean": "TargetMean"}
    found = result(evaluated(values, "composition", lines))
    assert {one.estimate: one.answer for one in found} == dict.fromkeys(lines.values(), "cannot be said")


def test_baseline_that_reads_noisy_sums_shows_no_leak() -> None:
    """An attack that answers as if it had no update is better than one that believes the noise."""
    values = {
        "ridge-on-sums": {"l1": [0.9, 1.0] * 8},
        "mean-of-sums": {"l1": [1.3, 1.4] * 8},
    }
    evaluation = evaluated(values, "sums-over-rounds", dict.fromkeys(values, "SharesOverRounds"))
    assert result(evaluation, summed=10)[0].answer == "cannot be said"
    equal = {"equal-shares": {"l1": [0.9, 1.0] * 8}}
    guess = evaluated(equal, "sums-over-rounds", {"equal-shares": "SharesOverRounds"})
    evaluation.scores, evaluation.lines = concat([evaluation.scores, guess.scores]), evaluation.lines | guess.lines
    (one,) = result(evaluation, summed=10)
    assert (one.answer, one.baseline and one.baseline.attack) == ("not shown", "equal-shares")
    assert one.everyday.startswith("No attack that ran is shown to be better than an answer without the update")


@pytest.mark.parametrize(
    ("certified", "false", "words"),
    [
        ([1.0, 0.5], [0.0, 0.0], "certain of both numbers of 75 of 100 nodes, and none of these is wrong."),
        ([1.0, 0.5], [0.0, 2.0], "certain of both numbers of 75 of 100 nodes, and 2 of these are wrong."),
        ([0.0, 0.0], [0.0, 0.0], "certain of nothing by itself"),
        (None, None, ""),
    ],
)
def test_a_statement_says_what_an_attack_is_certain_of(
    certified: list[float] | None, false: list[float] | None, words: str
) -> None:
    values = {"exact-nodes": [1.0, 1.0]}
    if certified is not None and false is not None:
        values |= {"certified-nodes": certified, "false-certified-nodes": false}
    evaluation = evaluated({"tree-counts": values}, "trees", {"tree-counts": "TreeCountsEstimate"})
    (question,) = result(evaluation)
    # Of two clients nothing can be said by comparison, and the certificate is said nevertheless.
    assert question.answer == "cannot be said"
    assert words in question.everyday
    assert ("certain of" in question.everyday) == (certified is not None)
