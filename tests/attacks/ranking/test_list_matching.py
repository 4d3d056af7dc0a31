"""The setting ``as-published-code`` equals RAIFLE's published code on drawn inputs."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedleak.attacks.ranking.list_matching import ListMatching
from fedleak.attacks.ranking.list_matching import _Loss as Loss
from fedleak.client.click_models import cascade_log_law, steps_for_grades
from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.modules.attackers.batched_lbfgs import batched_lbfgs
from tests.attacks.runs import plain_view
from tests.places import GOLDEN

PUBLISHED = np.load(GOLDEN / "raifle_ranking.npz", allow_pickle=False)
"""Made by RAIFLE's code; ``provenance`` names repository, commit, files and what was stubbed."""
KINDS = pytest.mark.parametrize("kind", ["linear", "neural"])


def array(name: str) -> Tensor:
    return torch.from_numpy(PUBLISHED[name])


def model(kind: str) -> dict[str, Tensor]:
    """The published parameters: hidden weights unit after unit, then the output."""
    parameters = array(f"{kind}_params")
    if kind == "linear":
        return {"ranker.weight": parameters}
    return {"hidden.weight": parameters[:24].reshape(4, 6), "output.weight": parameters[24:]}


def simulator(variant: str = "as-published-code") -> FPDGDAlgorithm:
    return FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=(0.5, 0.3, 0.2), variant=variant)  # type: ignore[arg-type]


def update(kind: str, clients: FPDGDAlgorithm) -> Tensor:
    document = array(f"{kind}_documents")[None]
    lists = array(f"{kind}_features")[None], document >= 0, array(f"{kind}_clicks")[None]
    deltas = clients.simulate_lists(model(kind), *lists, array(f"{kind}_order")[None], document=document)
    return torch.cat([value.flatten() for value in deltas.values()])


@KINDS
def test_update_of_a_published_client(kind: str) -> None:
    torch.testing.assert_close(update(kind, simulator()), array(f"{kind}_update"), atol=1e-6, rtol=1e-5)
    corrected = update(kind, simulator("corrected"))
    assert float((corrected - array(f"{kind}_update")).abs().max()) > 1e-4


def loss(kind: str, variant: str) -> tuple[Loss, Tensor]:
    """The attack's objective on the published update, and which of its logits are documents."""
    document = array(f"{kind}_documents")
    shown, sent = document >= 0, array(f"{kind}_update")
    number = torch.arange(3)[:, None].expand(shown.shape)
    sizes = {name: (value.shape, value.numel()) for name, value in model(kind).items()}
    parts = torch.split(sent, [count for _, count in sizes.values()])
    view = plain_view(
        1,
        deltas={name: part.reshape(1, *sizes[name][0]) for name, part in zip(sizes, parts, strict=True)},
        model=model(kind),
        served=document.flatten()[None],
        lists=number.where(shown, -1).flatten()[None],
        features=array(f"{kind}_features").flatten(0, 1)[None],
        algorithm=simulator(),
    )
    return Loss(view, half_detached=variant == "as-published-code"), shown.flatten()


def spread(values: Tensor, shown: Tensor) -> Tensor:
    """``(1, R)`` values of the documents, 0 where padded."""
    return torch.zeros(1, len(shown)).masked_scatter_(shown, values)


@KINDS
def test_gradient_of_the_published_attack(kind: str) -> None:
    objective, shown = loss(kind, "as-published-code")
    found, gradient = objective(spread(array(f"{kind}_logits"), shown), torch.arange(1))
    torch.testing.assert_close(found[0], array(f"{kind}_loss"))
    torch.testing.assert_close(gradient[0, shown], array(f"{kind}_gradient"), atol=1e-6, rtol=1e-4)


@KINDS
def test_corrected_gradient_is_that_of_the_loss_and_the_published_one_is_not(kind: str) -> None:
    objective, shown = loss(kind, "corrected")
    objective.model = {name: value.double() for name, value in objective.model.items()}
    objective.received = objective.received.double()
    objective.lists = type(objective.lists)(
        objective.lists.mask, objective.lists.features.double(), objective.lists.place, objective.lists.document
    )
    point = spread(array(f"{kind}_logits"), shown).double()
    _, gradient = objective(point, torch.arange(1))
    steps = torch.eye(len(shown), dtype=torch.float64)[shown] * 1e-5
    ends = [torch.cat([objective(point + sign * step, torch.arange(1))[0] for step in steps]) for sign in (1, -1)]
    slopes = (ends[0] - ends[1]) / 2e-5
    torch.testing.assert_close(gradient[0, shown], slopes, atol=1e-7, rtol=1e-5)
    published = array(f"{kind}_gradient").double()
    assert float((published - slopes).norm() / slopes.norm()) > 0.02


@KINDS
def test_clicks_that_the_published_attack_finds(kind: str) -> None:
    """After five iterations; later, line searches fail for the wrong gradient, and rounding decides where they end."""
    objective, shown = loss(kind, "as-published-code")
    start = spread(array(f"{kind}_begin"), shown)
    point, _ = batched_lbfgs(objective, start, max_iter=5, max_eval=1000, learning_rate=ListMatching().learning_rate)
    torch.testing.assert_close(point[0, shown], array(f"{kind}_found"), atol=1e-3, rtol=1e-3)


def test_stale_clicks_of_published_clients() -> None:
    steps = steps_for_grades("informational", array("click_grades"), 3)
    counts = array("click_counts").double()
    law = cascade_log_law(steps, torch.ones(3, dtype=torch.bool), stale=True).exp().double()
    error = (law * (1 - law) / counts.sum()).sqrt()
    assert bool(((counts / counts.sum() - law).abs() <= 4 * error).all())
    fresh = cascade_log_law(steps, torch.ones(3, dtype=torch.bool)).exp()
    assert float((counts / counts.sum() - fresh).abs().max()) > 0.02
