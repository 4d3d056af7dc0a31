"""Private vectors are scored by hand."""

import pytest
import torch

from fedleak.attacks.identifiability.pac import VectorEstimate
from fedleak.core.estimates import EstimateError
from fedleak.core.view import ITEM_EMBEDDING, RoundView
from tests.attacks.runs import plain_view


def view() -> RoundView:
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [1.0, 1.0]])
    return plain_view(
        1,
        example_counts=torch.tensor([3]),
        deltas={ITEM_EMBEDDING: torch.zeros(1, 4, 2)},
        model={ITEM_EMBEDDING: table},
        served=torch.tensor([[0, 1, -1, 2]]),
    )


def test_error_and_label_error_by_hand() -> None:
    truth = {"user_vector": torch.tensor([[1.0, -2.0]]), "labels": torch.tensor([[1.0, 1.0, 0.0, 0.0]])}
    # Own signs + - - -; those of the guess + + - +: two of four differ. The labels are + + -: none does.
    found = VectorEstimate(vectors=torch.tensor([[2.0, 1.0]])).score(view(), truth)
    assert {name: value.item() for name, value in found.metrics.items()} == {
        "error": 0.5,
        "label-error": 0.0,
        "cosine": 0.0,
        "flipped": 0.0,
    }
    assert found.items is not None
    assert found.positives is not None
    assert (found.items.item(), found.positives.item()) == (3, 2)
    turned = VectorEstimate(vectors=torch.tensor([[-1.0, 2.0]])).score(view(), truth).metrics
    assert (turned["error"].item(), turned["flipped"].item()) == (1.0, 1.0)
    # A vector of zeros says nothing of any item, and errs on all.
    assert VectorEstimate(vectors=torch.zeros(1, 2)).score(view(), truth).metrics["error"].item() == 1.0


def test_vectors_of_another_shape_or_no_numbers_are_refused() -> None:
    with pytest.raises(EstimateError, match="shape"):
        VectorEstimate(vectors=torch.zeros(2, 2)).check(view())
    with pytest.raises(EstimateError, match="finite"):
        VectorEstimate(vectors=torch.full((1, 2), torch.nan)).check(view())
