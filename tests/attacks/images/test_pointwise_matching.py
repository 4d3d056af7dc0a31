"""Gradient matching on votes: it finds them on a toy, keeps its best point, and reads nothing in another's update."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from fedleak.attacks.images.affine_inversion import pointwise_update
from fedleak.attacks.images.pointwise_matching import PointwiseMatching
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import RoundView
from tests.attacks.images.votes import toy, voting_round
from tests.attacks.runs import of_others, run
from tests.places import ROOT


def estimated(view: RoundView, max_iter: int) -> InteractionEstimate:
    return run(PointwiseMatching(max_iter=max_iter), view, InteractionEstimate)


def losses(view: RoundView, logits: Tensor) -> Tensor:
    update = pointwise_update(view)
    return update.path(torch.sigmoid(logits))[-1].plus(update.sent.plus(update.change), -1.0).squares()


@pytest.mark.parametrize("ranker", ["linear", "neural"])
def test_update_and_attack_of_the_authors_code(ranker: str) -> None:
    stored = np.load(ROOT / "tests" / "golden" / "raifle_images.npz")
    given = {name: torch.from_numpy(stored[name]) for name in stored.files if stored[name].dtype == np.float32}
    if ranker == "linear":
        model = {"ranker.weight": given["linear.weight"]}
    else:
        layers = {"hidden": "neural.0", "output": "neural.2"}
        model = {
            f"{own}.{kind}": given[f"{name}.{kind}"] for own, name in layers.items() for kind in ("weight", "bias")
        }
        model = {name: value if name == "output.weight" else value[None] for name, value in model.items()}
    votes = given["votes"][None]
    view = voting_round(model, given["features"], votes, generators=lambda _: torch.Generator())
    # The authors send the old model minus the new one.
    order = ("ranker.weight", "hidden.weight", "hidden.bias", "output.weight", "output.bias")
    own = torch.cat([view.deltas[name].flatten() for name in order if name in view.deltas])
    torch.testing.assert_close(-own, given[f"{ranker}.update"], rtol=1e-4, atol=1e-7)
    attack = PointwiseMatching(variant="as-published-code")
    found = attack(view, generator=torch.Generator().manual_seed(7))
    assert isinstance(found, InteractionEstimate)
    torch.testing.assert_close(found.scores[0], given[f"{ranker}.logits"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("hidden", [0, 4])
def test_votes_are_found(hidden: int) -> None:
    view, votes = toy(30, 40, hidden)
    assert float(auc_per_victim(estimated(view, 100).scores, votes, view.served_mask).mean()) > 0.97


def test_another_clients_update_says_nothing() -> None:
    view, votes = toy(30, 40, 4, victims=40)
    models = {name: value.roll(1, dims=0) for name, value in (view.client_models or {}).items()}
    estimate = estimated(dataclasses.replace(of_others(view), client_models=models), 60)
    assert abs(float(auc_per_victim(estimate.scores, votes, view.served_mask).mean()) - 0.5) < 0.05


def test_more_steps_are_never_further_away() -> None:
    view, _ = toy(30, 40, 4)
    few, more = (losses(view, estimated(view, steps).scores) for steps in (5, 40))
    assert bool((more <= few).all())


@pytest.mark.parametrize(
    ("manipulation", "label"), [(None, "raifle-none"), ("fgsm", "fgsm"), ("noise", "raifle"), ("indirect", "raifle")]
)
def test_what_the_server_sent_is_in_the_label(manipulation: str | None, label: str) -> None:
    view, _ = toy(10, 16, 0, victims=2)
    assert PointwiseMatching().label(dataclasses.replace(view, manipulation=manipulation)) == label
    assert label in PointwiseMatching.names()
