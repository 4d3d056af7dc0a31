"""IMIA against its authors' steps, what a pass confirms, and how its parameter decides its strength."""

import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.recommendation.imia import IMIA
from fedleak.core.scoring import f1_per_victim
from tests.attacks.runs import run
from tests.golden.recommendation import VICTIMS, golden, published_view
from tests.toys import leaky_view


@pytest.mark.parametrize("victim", VICTIMS)
def test_guesses_as_the_published_code(victim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published code's shuffles take the place of the random keys, and its user vector of the drawn one."""
    orders = iter([order for name, order in golden().items() if name.startswith(f"order{victim}_")])

    def shuffled(shape: tuple[int, ...], **_: object) -> Tensor:
        order = next(orders)
        return torch.full(shape, torch.inf).scatter(1, order[None], torch.arange(len(order))[None].float())

    monkeypatch.setattr(torch, "rand", shuffled)
    monkeypatch.setattr(torch, "randn", lambda *_, **__: golden()[f"user_guess{victim}"][None])
    estimate = run(IMIA(), published_view(victim), InteractionEstimate)
    assert torch.equal(estimate.decisions[0].float(), golden()[f"imia{victim}"])
    assert next(orders, None) is None


def decide(attack: IMIA) -> tuple[Tensor, float, Tensor]:
    view, labels = leaky_view(victims=4)
    estimate = run(attack, view, InteractionEstimate)
    f1 = f1_per_victim(estimate.decisions, labels, view.served_mask)
    return estimate.decisions, float(f1.mean()), view.served_mask.sum(1)


@pytest.mark.integration
@pytest.mark.parametrize("confirmed", [0.9, 0.3])
def test_as_many_items_are_positive_as_the_attack_assumes(confirmed: float) -> None:
    decisions, _, sizes = decide(IMIA(confirmed=confirmed, selection=0.25))
    assert decisions.sum(1).tolist() == (sizes // 4).tolist()


@pytest.mark.integration
def test_confirming_less_in_a_pass_makes_it_stronger() -> None:
    assert decide(IMIA(confirmed=0.1))[1] > decide(IMIA())[1] + 0.2
