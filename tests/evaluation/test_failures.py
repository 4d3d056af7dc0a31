"""Which attacks failed, and why attacks cannot run: what lacks, and what to do about it."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from fedleak.attacks.attributes.lda import AttributeLDA
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.label_sets import RLG
from fedleak.attacks.composition.last_layer import LastLayerCounts
from fedleak.attacks.declared_privacy.canary_bounds import CanaryBounds
from fedleak.attacks.linkability.links import LinkCounts
from fedleak.attacks.matching.same_user import MatchingChance
from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.fncf import FNCFAlgorithm
from fedleak.core.view import RoundView
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.failures import explain, unfit
from fedleak.evaluation.near_guessing import near_guessing, no_reconstructions
from fedleak.evaluation.reasons import Reason
from tests.frames import cell, results

VIEW = RoundView(
    round=0,
    pseudonyms=torch.arange(2),
    example_counts=torch.ones(2),
    deltas={"output.weight": torch.zeros(2, 3, 4), "output.bias": torch.zeros(2, 3)},
    model={},
)
COUNTS = {"class_counts": torch.ones(2, 3)}


def test_the_remedies_stand_next_to_what_lacks() -> None:
    assert str(unfit(Decaf(), VIEW, COUNTS)) == (
        "the recording lacks the clients' training algorithm, labelled examples of the server's own; add `learner:` to"
        " the manifest, or give --learner my_package.MyLearner (one of the kind ClassifierAlgorithm); add images,"
        " labels to the server's data (`auxiliary:`)"
    )
    assert "known_pseudonyms" in str(unfit(MatchingChance(), VIEW, {}))
    assert "train with the defence Canaries" in str(unfit(CanaryBounds(), VIEW, {}))
    assert unfit(LinkCounts(), VIEW, {}) == Reason("lacking", ("several rounds",), "record two rounds or more")


def test_adapters_without_a_learner_are_told_which_options_name_it() -> None:
    shapes = {"l.query.lora_A.weight": (8, 64), "l.query.lora_B.weight": (32, 8), "l.value.lora_A.weight": (8, 64)}
    view = dataclasses.replace(VIEW, deltas={name: torch.zeros(2, *shape) for name, shape in shapes.items()})
    sentence = str(unfit(AdapterWords(), view, {"words": torch.ones(2, 3)}))
    options = '--learner.adapter.rank 8 --learner.adapter.targets "[query, value]"'
    assert f"give --learner Pretrained --learner.path DIR {options}, with the folder DIR" in sentence
    assert "MyLearner" not in sentence
    assert "sequence-classification" not in sentence
    # A new head is trained whole next to the adapters of a classifier.
    classifier = dataclasses.replace(view, deltas={**view.deltas, "classifier.bias": torch.zeros(2, 2)})
    assert "--learner.task sequence-classification" in str(unfit(AdapterWords(), classifier, {"words": torch.ones(2)}))


def test_missing_ground_truth_and_a_recording_published_without_any_have_different_reasons() -> None:
    some, none = (unfit(LastLayerCounts(), VIEW, truth) for truth in ({"clients": torch.arange(2)}, {}))
    assert some is not None
    assert none is not None
    assert "add class_counts to the truth of each client" in some.way_out
    assert "published without truth/" in none.way_out
    assert (some.kind, some.lacks) == ("unscored", ("class_counts",))
    assert str(some).startswith("without class_counts in truth/ of the recording it cannot be scored; add ")
    lacking = unfit(Decaf(), VIEW, {})
    assert lacking is not None
    assert lacking.kind == "lacking"
    assert unfit(LastLayerCounts(), VIEW, COUNTS) is None


def test_a_learner_of_another_kind_is_no_missing_learner() -> None:
    learner = FNCFAlgorithm(user_dim=4, local=LocalTraining())
    reason = str(unfit(Decaf(), dataclasses.replace(VIEW, algorithm=learner), COUNTS))
    assert "lacks" not in reason
    assert "clients that learn to classify by softmax; " in reason
    assert "is FNCFAlgorithm, no ClassifierAlgorithm" in reason


def test_classes_that_the_truth_does_not_count_are_no_fault_of_the_truth() -> None:
    assert "outputs for 3 classes" in str(unfit(RLG(), VIEW, {"class_counts": torch.ones(2, 2)}))


def test_one_output_after_a_hidden_layer_is_no_softmax() -> None:
    """A hidden layer is no last layer, however many units it has."""
    deltas = {"0.weight": torch.zeros(2, 512, 4), "0.bias": torch.zeros(2, 512)}
    deltas |= {"2.weight": torch.zeros(2, 1, 512), "2.bias": torch.zeros(2, 1)}
    reason = str(unfit(RLG(), dataclasses.replace(VIEW, deltas=deltas), {"class_counts": torch.ones(2, 2)}))
    assert reason.startswith("the question does not apply: the network has a single output")


@pytest.mark.parametrize(
    ("result", "near"),
    [
        (cell("direction", "auc", 0.95, 0.93, 0.97), False),
        (cell("direction", "auc", 0.82, 0.78, 0.84), True),  # popularity, which reads nothing, is better
        (cell("decaf", "l1", 0.2, 0.1, 0.3), False),
        (cell("decaf", "l1", 0.39, 0.35, 0.42), True),
        (cell("decaf", "l1", 0.2, 0.0, 0.5), True),  # the interval holds the guess
        (cell("reid-svm", "ap", 0.5, 0.4, 0.6), False),  # nothing to compare with
    ],
)
def test_near_is_measured_from_the_best_guess(result: dict[str, Any], near: bool) -> None:
    others = [cell("chance", "auc", 0.5, 0.4, 0.6), cell("popularity", "auc", 0.8, 0.7, 0.9)]
    others += [cell("random-guess", "l1", 0.7, 0.6, 0.8), cell("equal-counts", "l1", 0.4, 0.3, 0.5)]
    table = results(result, *others)
    assert Cells(table).is_near(result) == near
    assert [row["attack"] for row in near_guessing(table)] == ([result["attack"]] if near else [])


def test_without_a_baseline_an_auc_is_measured_from_a_half() -> None:
    """The popularity of items, with which it is compared, did not run: so much is the most that it can have gained."""
    row = cell("direction", "auc", 0.6, 0.5, 0.7)
    assert Cells(results(row)).comparison(row) is None
    assert Cells(results(row)).most_gain(row) == pytest.approx(0.2)


@pytest.mark.parametrize(("low", "high", "cause"), [(0.3, 0.75, "few-victims"), (0.45, 0.58, "unknown")])
def test_a_wide_interval_about_guessing_is_of_too_few_victims(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float, cause: str
) -> None:
    monkeypatch.setattr("fedleak.evaluation.failures.measured_causes", lambda *_, **__: [])
    monkeypatch.setattr("fedleak.evaluation.failures.recorded_learner", lambda _: None)
    recording: Any = SimpleNamespace(rounds=[], views=lambda **_: iter(()))
    (found,) = explain(results(cell("direction", "auc", 0.55, low, high)), recording, seed=0)
    assert (found.attack, found.cause) == ("direction", cause)


@pytest.mark.parametrize(("identified", "near"), [(0.97, False), (0.02, True)])
def test_an_attack_that_one_metric_shows_to_succeed_has_not_failed(identified: float, near: bool) -> None:
    """Images may be recognised without being exact."""
    rows = [cell("mean-image", "recovered", 0.0), cell("mean-image", "identified", 0.01)]
    rows += [cell("inverting-gradients", "recovered", 0.0), cell("inverting-gradients", "identified", identified)]
    assert [row["attack"] for row in near_guessing(results(*rows))] == (["inverting-gradients"] if near else [])


def images(psnr: float, low: float, baseline: float) -> pd.DataFrame:
    rows = [
        ("attack", "attack", "psnr", psnr, psnr),
        ("attack", "attack", "identified", 0.05, low),
        ("attack", "attack", "identified-by-chance", 0.01, 0.01),
        ("mean", "baseline", "psnr", baseline, baseline),
        ("mean", "baseline", "identified", 0.01, 0.0),
        ("mean", "baseline", "identified-by-chance", 0.01, 0.01),
    ]
    table = pd.DataFrame(rows, columns=["attack", "role", "metric", "mean", "low"])
    return table.assign(question="reconstruction", setting_data="cifar10")


@pytest.mark.parametrize(
    ("psnr", "low", "baseline", "found"),
    [(11.0, 0.0, 10.0, 1), (12.5, 0.01, 12.7, 1), (15.0, 0.0, 12.7, 0), (11.0, 0.02, 10.0, 0)],
)
def test_no_reconstruction_is_low_likeness_and_chance(psnr: float, low: float, baseline: float, found: int) -> None:
    causes = no_reconstructions(images(psnr, low, baseline))
    assert len(causes) == found
    for cause in causes:
        assert (cause.attack, cause.metric, cause.cause) == ("attack", "identified", "no-reconstruction")
        assert (
            cause.sentence
            == f"no reconstruction: PSNR {psnr:.1f} dB, and its images identify 5.0% of the true ones, 1.0% by chance"
        )
        assert cause.measured == {"psnr": psnr, "identified": 0.05, "chance": 0.01}


def test_comparisons_of_all_messages_are_refused_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = {"attributes": torch.zeros(2, 1), "clients": torch.arange(2)}
    monkeypatch.setattr(RoundView, "missing", lambda *_: [])
    assert unfit(AttributeLDA(), VIEW, truth) is None
    monkeypatch.setattr("fedleak.evaluation.failures.memory_bound", lambda: 8)
    reason = str(unfit(AttributeLDA(), VIEW, truth))
    assert reason.startswith("it compares 2 messages with each other")
    assert reason.endswith("give --victims")
