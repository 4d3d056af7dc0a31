"""Why attacks cannot run: what lacks, and what to do about it."""

import torch

from attacks.composition.decaf import Decaf
from attacks.composition.last_layer import LastLayerCounts
from attacks.deanonymization.baselines import MatchingChance
from attacks.declared_privacy.canary_bounds import CanaryBounds
from attacks.linkability.links import LinkCounts
from evaluation.remedies import is_unscored, unfit
from protocol.view import ServerView

VIEW = ServerView(
    round=0, pseudonyms=torch.arange(2), example_counts=torch.ones(2), deltas={"w": torch.zeros(2, 3)}, model={}
)
COUNTS = {"class_counts": torch.ones(2, 3)}


def test_the_remedies_stand_next_to_what_lacks() -> None:
    assert unfit(Decaf(), VIEW, COUNTS) == (
        "the recording lacks learner (ClassifierSimulator), auxiliary (images), auxiliary (labels); add `learner:` to"
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
