"""Users are scored over their messages."""

from collections.abc import Mapping

import pytest
import torch

from fedleak.attacks.re_identification.estimates import IdentityEstimate
from tests.attacks.runs import plain_view


def scored(estimate: IdentityEstimate, truth: torch.Tensor) -> tuple[list[int], list[int], Mapping[str, torch.Tensor]]:
    """Users, how many messages each has, and their metrics."""
    scores = estimate.score(plain_view(len(truth)), {"user": truth})
    assert scores.units is not None
    assert scores.positives is not None
    return scores.units.tolist(), scores.positives.tolist(), scores.metrics


def test_users_are_scored_over_messages_by_hand() -> None:
    scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    estimate = IdentityEstimate(scores=scores, users=torch.tensor([5, 9]))
    users, counts, metrics = scored(estimate, torch.tensor([5, 9, 9, 5]))
    assert users == [5, 9]
    assert counts == [2, 2]
    assert metrics["ap"].tolist() == pytest.approx([(1 + 2 / 3) / 2, (1 + 2 / 3) / 2])
    assert metrics["times-chance"].tolist() == pytest.approx([5 / 3, 5 / 3])
    assert metrics["top1"].tolist() == [1, 0.5]


def test_strangers_count_as_unseen_where_that_is_a_class_and_as_errors_where_not() -> None:
    truth = torch.tensor([0, 7, 8])
    with_class = IdentityEstimate(
        scores=torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]]), users=torch.tensor([-1, 0])
    )
    users, counts, metrics = scored(with_class, truth)
    assert users == [-1, 0]
    assert counts == [2, 1]
    assert metrics["ap"].tolist() == [1, 1]
    without = IdentityEstimate(scores=torch.tensor([[0.5], [0.6], [0.4]]), users=torch.tensor([0]))
    users, _, metrics = scored(without, truth)
    assert users == [0]
    assert metrics["ap"].tolist() == [0.5]
