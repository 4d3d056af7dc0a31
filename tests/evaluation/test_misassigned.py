"""Updates of other clients than recorded are found by the ground truth; estimates that are only wrong are not."""

import dataclasses

import pandas as pd
import torch
from torch import Tensor

from fedleak.core.view import RoundView
from fedleak.evaluation.misassigned import misassigned
from fedleak.evaluation.runner import Evaluation
from tests.composition_toys import views


def evaluation_of(inferred: Tensor, true: Tensor) -> Evaluation:
    rows = [
        {
            "attack": "a",
            "round": 0,
            "victim": v,
            "class": c,
            "inferred": float(inferred[v, c]),
            "true": float(true[v, c]),
        }
        for v in range(len(true))
        for c in range(true.shape[1])
    ]
    return Evaluation(profiles=pd.DataFrame(rows))


def round_of_toy() -> tuple[RoundView, Tensor]:
    (view,), true = views()
    return view, true


def test_exact_estimates_of_the_next_client_are_misassigned() -> None:
    view, true = round_of_toy()
    assert "other clients" in misassigned(evaluation_of(true.roll(1, 0), true), view)
    assert not misassigned(evaluation_of(true, true), view)


def test_wrong_estimates_are_not_those_of_other_clients() -> None:
    view, true = round_of_toy()
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        guessed = torch.rand(true.shape, generator=generator, dtype=torch.float64)
        noisy = true.roll(1, 0) + guessed
        assert not misassigned(evaluation_of(guessed / guessed.sum(1, keepdim=True), true), view)
        assert not misassigned(evaluation_of(noisy / noisy.sum(1, keepdim=True), true), view)


def test_one_update_of_all_clients_is_found_without_the_truth() -> None:
    view, _ = round_of_toy()
    same = {name: value[:1].expand_as(value) for name, value in view.deltas.items()}
    pairs = {name: value[torch.arange(len(value)) // 2] for name, value in view.deltas.items()}
    assert "same update" in misassigned(Evaluation(), dataclasses.replace(view, deltas=same))
    assert not misassigned(Evaluation(), dataclasses.replace(view, deltas=pairs))
