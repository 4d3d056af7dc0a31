"""Clients that train a head on a frozen network: features once, the same numbers by all engines, the hash."""

import dataclasses

import pytest
import torch
from torch.nn import functional

from fedleak.client.backbones import Backbone, backbone
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.frozen_backbone import FEATURES, FrozenBackboneAlgorithm
from fedleak.client.record_losses import record_gradients, record_losses
from fedleak.core.errors import InputError

LOCAL = LocalTraining(optimizer="sgd", learning_rate=0.1)
ALGORITHM = FrozenBackboneAlgorithm(backbone="drawn", hidden=8, num_classes=3, local=LOCAL)
MODEL = {name: value.detach() for name, value in ALGORITHM.template.named_parameters()}


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def cohort(records: torch.Tensor, labels: torch.Tensor) -> Cohort:
    mask = torch.ones(1, len(records), dtype=torch.bool)
    return Cohort(0, torch.arange(1), {"image": records[None], "label": labels[None]}, mask)


def test_only_the_head_is_trained_and_its_step_is_that_of_autograd() -> None:
    records, labels = images(4), torch.tensor([0, 1, 2, 2])
    deltas = ALGORITHM.train(MODEL, cohort(records, labels), seed=0).deltas
    assert list(deltas) == [
        f"network.{name}" for name in ("hidden.weight", "hidden.bias", "output.weight", "output.bias")
    ]
    leaves = {name: value.clone().requires_grad_() for name, value in MODEL.items()}
    logits = torch.func.functional_call(ALGORITHM.template, leaves, (ALGORITHM.frozen(records),))
    gradients = torch.autograd.grad(functional.cross_entropy(logits, labels), list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        assert torch.allclose(deltas[name][0], -0.1 * gradient, atol=1e-6)


def test_records_features_and_numbers_of_a_pool_give_the_same_update() -> None:
    records, labels = images(4), torch.tensor([0, 1, 2, 2])
    of_records = ALGORITHM.train(MODEL, cohort(records, labels), seed=0).deltas
    of_pool = ALGORITHM.simulate_examples(
        MODEL, records, labels, torch.arange(4)[None], generator=torch.Generator().manual_seed(0)
    )
    features = Cohort(
        0,
        torch.arange(1),
        {FEATURES: ALGORITHM.features_of(records)[None], "label": labels[None]},
        torch.ones(1, 4, dtype=torch.bool),
    )
    of_features = ALGORITHM.train(MODEL, features, seed=0).deltas
    for name, delta in of_records.items():
        assert torch.allclose(delta, of_pool[name], atol=1e-7)
        assert torch.allclose(delta, of_features[name], atol=1e-7)


def test_features_are_computed_once_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    network = backbone("drawn", seed=5)
    assert network.width == 64
    computed = []
    forward = type(network).forward

    def noted(self: Backbone, part: torch.Tensor) -> torch.Tensor:
        computed.append(len(part))
        return forward(self, part)

    monkeypatch.setattr(type(network), "forward", noted)
    records = images(3)
    first = network.features(torch.cat([records, records]))
    second = network.features((255 * records).round().to(torch.uint8).float().div(255))
    again = network.features(records[None])
    assert torch.equal(first[:3], first[3:])
    assert torch.equal(again[0], first[:3])
    assert second.shape == (3, 64)
    assert computed == [3, 3]


def test_losses_and_gradients_of_single_records_add_up_to_those_of_the_batch() -> None:
    records, labels = images(4), torch.tensor([0, 1, 2, 2])
    stacked = {name: value[None] for name, value in MODEL.items()}
    assert record_losses(ALGORITHM, stacked, records, labels).shape == (1, 4)
    gradients = record_gradients(ALGORITHM, MODEL, records, labels)
    deltas = ALGORITHM.train(MODEL, cohort(records, labels), seed=0).deltas
    for name, gradient in gradients.items():
        assert torch.allclose(deltas[name][0], -0.1 * gradient.mean(0), atol=1e-6)


def test_a_recording_names_the_backbone_by_kind_and_hash_and_no_file() -> None:
    arguments = ALGORITHM.arguments()
    assert "folder" not in arguments
    assert arguments["base"] == backbone("drawn").hash
    assert dataclasses.replace(ALGORITHM, base=arguments["base"]).frozen is not None
    with pytest.raises(InputError, match="SHA-256"):
        _ = dataclasses.replace(ALGORITHM, base=arguments["base"], base_seed=1).frozen


def test_examples_of_another_kind_are_refused() -> None:
    others = Cohort(0, torch.arange(1), {"tokens": torch.ones(1, 2, 3).long()}, torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(InputError, match="image"):
        ALGORITHM.fields(others.examples)
