"""Gradient matching of images: objectives as in breaching, and the time limit."""

import pytest
import torch
from torch import Tensor

from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.modules.attackers.image_matching import ImageMatching
from fedleak.modules.attackers.trainer import fit_quietly
from tests.golden.image_matching import CASES, clients, stored


def stored_view(number: int, dtype: torch.dtype = torch.float64) -> RoundView:
    arrays = stored(number)
    case = CASES[number]
    # A gradient is stored for one step, an update for several.
    sign = -case.local.learning_rate if case.local.batch_size is None else 1.0
    received = {
        name[9:]: sign * value[None].to(dtype) for name, value in arrays.items() if name.startswith("received/")
    }
    return RoundView(
        round=0,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.tensor([4]),
        deltas=received,
        model={name[6:]: value.to(dtype) for name, value in arrays.items() if name.startswith("model/")},
        algorithm=clients(case),
    )


def matching(view: RoundView, labels: tuple[int, ...], **changes: object) -> ImageMatching:
    options = {
        "shape": (3, 8, 8),
        "generator": generator_for(0, "matching"),
        "simulate": False,
        "objective": "cosine",
        "solver": "signed-adam",
        "total_variation": 0.0,
        "step": 0.1,
        "max_iter": 5,
    }
    return ImageMatching(view, torch.tensor([labels]), **options | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_objectives_and_gradients_are_those_of_breaching(number: int) -> None:
    case, arrays = CASES[number], stored(number)
    module = matching(
        stored_view(number),
        case.labels,
        simulate=case.local.batch_size is not None,
        objective=case.objective,
        total_variation=case.total_variation,
    )
    module.batches = case.batches[None]
    images = arrays["images"][None].requires_grad_()
    losses, _ = module.losses(torch.zeros(1, dtype=torch.int64), images)
    (gradient,) = torch.autograd.grad(losses.sum(), images)
    # Squared distances are of mean gradients here, and of sums of steps there.
    steps = len(case.batches) * case.local.learning_rate
    scale = steps**2 if case.objective == "euclidean" and case.local.batch_size is not None else 1.0
    torch.testing.assert_close(losses[0] * scale, arrays["loss"], rtol=1e-5, atol=0)
    torch.testing.assert_close(
        gradient[0] * scale, arrays["gradient"], rtol=1e-5, atol=1e-5 * float(gradient.abs().max())
    )


def test_another_model_has_another_objective() -> None:
    case, arrays = CASES[0], stored(0)
    module = matching(stored_view(0), case.labels[::-1], total_variation=case.total_variation)
    losses, _ = module.losses(torch.zeros(1, dtype=torch.int64), arrays["images"][None])
    assert abs(float(losses.detach()) - float(arrays["loss"])) > 1e-3


@pytest.mark.integration
@pytest.mark.parametrize("solver", ["signed-adam", "lbfgs"])
def test_a_run_out_of_time_returns_what_it_has(solver: str) -> None:
    module = matching(stored_view(0, torch.float32), CASES[0].labels, solver=solver, max_iter=10**6, seconds=0.1)
    fit_quietly(module, accelerator="cpu", max_epochs=1)
    assert module.elapsed < 10
    found: Tensor = module.found()
    assert bool(module.best_loss.isfinite().all())
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
