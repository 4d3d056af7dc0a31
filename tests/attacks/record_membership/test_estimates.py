"""Scores of membership, by hand."""

import pytest
import torch

from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate, class_auc
from fedleak.core.errors import ViewError
from fedleak.core.estimates import EstimateError
from fedleak.core.view import CANDIDATE_LABELS
from tests.membership_toys import MEMBER, SCORES, TRUTH, of_two_clients

VIEW = of_two_clients()


def membership(scores: torch.Tensor = SCORES) -> RecordMembershipEstimate:
    return RecordMembershipEstimate(
        senders=VIEW.pseudonyms,
        scores=scores,
        predicted=torch.full((len(scores),), torch.nan),
        duplicates=torch.zeros(4, dtype=torch.bool),
    )


def test_rates_are_at_one_threshold_for_all_clients() -> None:
    scores = membership().score(VIEW, TRUTH)
    assert scores.units is not None
    assert scores.units.tolist() == [7, 5]
    assert scores.metrics["auc"].tolist() == [0.75, pytest.approx(2.5 / 3)]
    # The best other candidate has 2: only the first client's 3 is above it.
    for name in ("tpr@0.01", "tpr@0.001", "no-false-alarm"):
        assert scores.metrics[name].tolist() == [0.5, 0]
        assert scores.metrics[name.replace("tpr", "fpr")].tolist() == [0, 0] or name == "no-false-alarm"
    assert "predicted-auc" not in scores.metrics
    pooled = scores.details[0]
    assert [pooled[name] for name in ("TPR", "TPR of", "FPR", "FPR of")] == [pytest.approx(1 / 3), 3, 0, 5]
    assert pooled["FPR high"] == pytest.approx(1 - 0.025**0.2)
    exposed = [row for row in scores.details if row["what"] == "most exposed record"]
    assert [(row["client"], row["place in the pool"], row["others above"]) for row in exposed] == [
        *((7, 0, 0), (5, 2, 1), (7, 1, 3))
    ]
    assert scores.roc is not None
    assert scores.roc[:, -1].tolist() == [1, 1]


def test_class_auc_compares_within_a_class() -> None:
    labels = VIEW.auxiliary[CANDIDATE_LABELS]
    assert class_auc(SCORES, MEMBER, labels).tolist() == [0.5, 1]
    by_class = labels.double().expand(2, -1)
    assert class_auc(by_class, MEMBER, labels).tolist() == [0.5, 0.5]


def test_ground_truth_about_other_candidates_is_refused() -> None:
    with pytest.raises(ViewError, match="member"):
        membership().score(VIEW, {**TRUTH, "member": MEMBER[:, :3]})


def test_an_estimate_of_another_shape_is_a_defect() -> None:
    with pytest.raises(EstimateError, match="scores"):
        membership(SCORES[:, :3]).check(VIEW)
