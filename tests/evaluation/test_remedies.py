"""Why attacks cannot run: what lacks, and what to do about it."""

import dataclasses

import torch

from attacks.composition.decaf import Decaf
from attacks.composition.label_sets import RLG
from attacks.composition.last_layer import LastLayerCounts
from attacks.declared_privacy.canary_bounds import CanaryBounds
from attacks.linkability.links import LinkCounts
from attacks.matching.baselines import MatchingChance
from client.engine.local_hyperparameters import LocalTraining
from client.fncf import FNCFAlgorithm
from evaluation.remedies import is_unscored, unfit
from protocol.view import RoundView

VIEW = RoundView(
    round=0,
    pseudonyms=torch.arange(2),
    example_counts=torch.ones(2),
    deltas={"output.weight": torch.zeros(2, 3, 4), "output.bias": torch.zeros(2, 3)},
    model={},
)
COUNTS = {"class_counts": torch.ones(2, 3)}


def test_the_remedies_stand_next_to_what_lacks() -> None:
    assert unfit(Decaf(), VIEW, COUNTS) == (
        "the recording lacks learner (ClassifierAlgorithm), auxiliary (images), auxiliary (labels); add `learner:` to"
        " the manifest, or give --learner my_package.MyLearner; add images, labels to the server's data (`auxiliary:`)"
    )
    assert "known_pseudonyms" in str(unfit(MatchingChance(), VIEW, {}))
    assert "train with the defence Canaries" in str(unfit(CanaryBounds(), VIEW, {}))
    assert unfit(LinkCounts(), VIEW, {}) == "the recording lacks sent_in; record two rounds or more"


def test_missing_ground_truth_and_a_recording_published_without_any_have_different_reasons() -> None:
    some, none = (unfit(LastLayerCounts(), VIEW, truth) for truth in ({"clients": torch.arange(2)}, {}))
    assert some is not None
    assert none is not None
    assert "add class_counts to the truth of each client" in some
    assert "published without truth/" in none
    assert is_unscored(some)
    assert not is_unscored(str(unfit(Decaf(), VIEW, {})))
    assert unfit(LastLayerCounts(), VIEW, COUNTS) is None


def test_a_learner_of_another_kind_is_no_missing_learner() -> None:
    learner = FNCFAlgorithm(user_dim=4, local=LocalTraining())
    reason = str(unfit(Decaf(), dataclasses.replace(VIEW, algorithm=learner), COUNTS))
    assert "lacks" not in reason
    assert "no ClassifierAlgorithm (clients that learn to classify by softmax" in reason


def test_classes_that_the_truth_does_not_count_are_no_fault_of_the_truth() -> None:
    assert "outputs for 3 classes" in str(unfit(RLG(), VIEW, {"class_counts": torch.ones(2, 2)}))


def test_one_output_after_a_hidden_layer_is_no_softmax() -> None:
    """A hidden layer is no last layer, however many units it has."""
    deltas = {"0.weight": torch.zeros(2, 512, 4), "0.bias": torch.zeros(2, 512)}
    deltas |= {"2.weight": torch.zeros(2, 1, 512), "2.bias": torch.zeros(2, 1)}
    reason = str(unfit(RLG(), dataclasses.replace(VIEW, deltas=deltas), {"class_counts": torch.ones(2, 2)}))
    assert "one output of the last layer, '2'" in reason
