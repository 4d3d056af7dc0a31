"""LAMP finds a short text, its orders are orders, and its language model counts pairs."""

import dataclasses
from typing import Any

import pytest
import torch

from fedleak.attacks.reconstruction.estimates import TextsEstimate
from fedleak.attacks.reconstruction.lamp import Lamp, PairCounts, changed_order
from fedleak.core.errors import ViewError
from tests.attacks.runs import of_noise, of_others, run
from tests.published_text_toys import generator, metric, short_texts

pytestmark = pytest.mark.integration
QUICK: dict[str, Any] = {"starts": 5, "orders": 5}


def test_a_short_text_is_found() -> None:
    view, truth = short_texts()
    estimate = run(Lamp(max_iter=80, **QUICK), view, TextsEstimate)
    estimate.check(view)
    assert sum(metric(estimate, view, truth, "words-in-place")) / 2 >= 0.6


@pytest.mark.parametrize("decouple", [of_others, of_noise])
def test_an_update_of_somebody_else_shows_nothing(decouple: Any) -> None:
    view, truth = short_texts()
    estimate = run(Lamp(max_iter=80, **QUICK), decouple(view), TextsEstimate)
    assert max(metric(estimate, view, truth, "words-in-place")) <= 0.2


@pytest.mark.parametrize("kind", range(4))
def test_changes_of_order_are_orders(kind: int) -> None:
    random = generator()
    for length in (2, 3, 9):
        orders = [changed_order(length, kind, random) for _ in range(30)]
        assert all(order.sort().values.tolist() == list(range(length)) for order in orders)
        assert len({tuple(order.tolist()) for order in orders}) > 1


def test_perplexity_by_hand() -> None:
    """After 1 follows 2 in two of three cases; 3 was never first."""
    view = dataclasses.replace(
        short_texts()[0], auxiliary={"prior_features": torch.tensor([[1, 2, 0], [1, 2, 0], [1, 3, 0]])}
    )
    counts = PairCounts.of(view, 5)
    assert counts.perplexity(torch.tensor([[1, 2]])) == pytest.approx(
        -torch.tensor(0.7 * 2 / 3 + 0.25 * 2 / 6 + 0.05 / 5).log().item()
    )
    assert counts.perplexity(torch.tensor([[3, 1]])) == pytest.approx(
        -torch.tensor(0.25 * 3 / 6 + 0.05 / 5).log().item()
    )


def test_other_examples_are_no_language() -> None:
    view = dataclasses.replace(short_texts()[0], auxiliary={"prior_features": torch.zeros(3, 2)})
    with pytest.raises(ViewError, match="word numbers"):
        run(Lamp(max_iter=1, **QUICK), view, TextsEstimate)
