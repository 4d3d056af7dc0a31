"""The share of positives and the mean target follow from the change of one bias, and from no other client's."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedleak.attacks.composition.one_output import PositiveShare, TargetMean
from fedleak.attacks.composition.output_mean import GuessedShare, OutputMean, OutputShare
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.network import ModuleAlgorithm
from fedleak.client.one_output import OneOutput
from fedleak.core.errors import ViewError
from fedleak.core.view import RoundView
from tests.attacks.runs import of_noise, of_others, plain_view, run
from tests.output_toys import CLIENTS, STEP, logit_loss, squared_loss, toy


def error(view: RoundView, truth: dict[str, Tensor]) -> float:
    return float(run(OutputShare(), view, PositiveShare).score(view, truth).metrics["share-error"].mean())


def test_the_share_follows_by_hand_from_one_step() -> None:
    """``d = s (q - p)`` with s 0.5, p 0.5 of an output of zero, and q 0.8."""
    deltas = {"0.weight": torch.zeros(1, 1, 2), "0.bias": torch.tensor([[0.15]])}
    model = {"0.weight": torch.zeros(1, 2), "0.bias": torch.tensor([-0.075])}  # zero in the middle of the step
    learner = ModuleAlgorithm(module=nn.Sequential(nn.Linear(2, 1)), loss_function=logit_loss, local=STEP)
    view = plain_view(1, deltas=deltas, model=model, algorithm=learner)
    assert run(OutputShare(), view, PositiveShare).shares.tolist() == pytest.approx([0.8])
    halves = {"class_counts": torch.tensor([[1, 1]])}
    assert run(OutputShare(), view, PositiveShare).score(view, halves).metrics["share-error"].item() == pytest.approx(
        0.3
    )


@pytest.mark.parametrize(
    ("local", "most"),
    [
        (STEP, 0.05),
        (dataclasses.replace(STEP, batch_size=20, learning_rate=0.1), 0.05),
        (LocalTraining(optimizer="adam", learning_rate=0.01, batch_size=10), 0.15),
        (LocalTraining(optimizer="adam", learning_rate=0.01), 0.2),
    ],
)
def test_shares_are_near_and_those_of_other_updates_and_noise_are_not(local: LocalTraining, most: float) -> None:
    view, truth = toy(local)
    guessed = run(GuessedShare(), view, PositiveShare).score(view, truth).metrics["share-error"].mean()
    assert error(view, truth) < most
    assert float(guessed) > 0.24
    others = [error(of_others(view, step), truth) for step in range(1, CLIENTS)]
    assert sum(others) / len(others) > float(guessed)
    assert error(of_noise(view), truth) > 0.8 * float(guessed)


def test_an_unknown_learner_gives_the_order_and_says_what_is_assumed() -> None:
    view, truth = toy()
    unknown = dataclasses.replace(view, algorithm=None)
    found = run(OutputShare(), unknown, PositiveShare)
    assert "SGD" in found.assumes
    scores = found.score(unknown, truth)
    assert float(scores.metrics["share-correlation"].mean()) > 0.98
    assert "SGD" in str(scores.details[0]["assumes"])
    assert not run(OutputShare(), view, PositiveShare).assumes


def test_the_mean_target_of_a_regression_is_in_its_units() -> None:
    view, truth = toy(dataclasses.replace(STEP, learning_rate=0.01), binary=False)
    found = run(OutputMean(), view, TargetMean)
    assert float(found.score(view, truth).metrics["mean-error"].mean()) < 0.3
    wrong = run(OutputMean(), of_others(view), TargetMean).score(view, truth).metrics["mean-error"]
    assert float(wrong.mean()) > 2


def test_each_attack_refuses_the_other_loss_and_several_outputs() -> None:
    binary, regression = toy()[0], toy(dataclasses.replace(STEP, learning_rate=0.01), binary=False)[0]
    with pytest.raises(ViewError, match="logit"):
        run(OutputShare(), regression, PositiveShare)
    with pytest.raises(ViewError, match="regression"):
        run(OutputMean(), binary, TargetMean)
    wide = {"0.weight": torch.zeros(1, 3, 2), "0.bias": torch.zeros(1, 3)}
    with pytest.raises(ViewError, match="one output"):
        run(OutputShare(), plain_view(1, deltas=wide, model={n: v[0] for n, v in wide.items()}), PositiveShare)


def test_losses_are_known_by_their_derivative() -> None:
    def kind(loss: Callable[..., Tensor], outputs: int = 1) -> tuple[float, bool] | None:
        found = OneOutput.of(ModuleAlgorithm(module=nn.Linear(2, outputs), loss_function=loss, local=STEP))
        return None if found is None else (round(found.slope, 6), found.binary)

    assert kind(logit_loss) == (1, True)
    assert kind(squared_loss) == (2, False)
    assert kind(functional.poisson_nll_loss) == (1, False)
    assert kind(functional.l1_loss) is None
    assert kind(logit_loss, 2) is None
