"""Gradients and attacks on a pool of padded texts, of networks that decide by values what to compute."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.record_membership.candidate_fit import CandidateFit
from fedleak.attacks.record_membership.marginal import FedMIACosine
from fedleak.client.adapters import AdapterOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.record_losses import record_gradients
from fedleak.core.attack import Attack
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES
from tests.membership_toys import as_history, scored

pytestmark = pytest.mark.integration
CLIENTS, RECORDS, LENGTH = 4, 3, 8
_SIZES: dict[str, Any] = {"vocab_size": 120, "num_labels": 3, "pad_token_id": 0, "max_position_embeddings": 66}
BERT: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
NETWORKS: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, **BERT},
    "roberta": {**_SIZES, **BERT},
    "distilbert": {**_SIZES, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
}


def classifier(kind: str) -> PretrainedAlgorithm:
    return PretrainedAlgorithm(
        config=json.dumps({"model_type": kind, **NETWORKS[kind]}),
        task="sequence-classification",
        adapter=AdapterOptions(variant="none"),
        local=LocalTraining(learning_rate=0.1, batch_size=None),
    )


def padded_texts(count: int) -> tuple[Tensor, Tensor]:
    """Texts ``(M, L)`` of different lengths, padded with 0, and their classes ``(M,)``."""
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(1, 100, (count, LENGTH), generator=generator)
    lengths = torch.randint(2, LENGTH + 1, (count, 1), generator=generator)
    return texts.masked_fill(torch.arange(LENGTH) >= lengths, 0), torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_of_padded_texts_are_those_of_single_texts(kind: str) -> None:
    learner = classifier(kind)
    model, (texts, labels) = learner.first_model(), padded_texts(5)
    together = record_gradients(learner, model, texts, labels)
    own = {name: value.clone().requires_grad_() for name, value in learner.trained(model).items()}
    for number in range(len(texts)):
        loss = learner.record_losses(own, texts[number, None], labels[number, None]).sum()
        for name, gradient in zip(own, torch.autograd.grad(loss, list(own.values()), allow_unused=True), strict=True):
            expected = torch.zeros_like(own[name]) if gradient is None else gradient
            assert torch.allclose(together[name][number], expected, atol=1e-6)


@pytest.mark.parametrize("attack", [CandidateFit(), FedMIACosine()], ids=lambda attack: attack.name)
def test_members_of_a_pool_of_padded_texts_are_found(attack: Attack) -> None:
    learner = classifier("bert")
    texts, labels = padded_texts(2 * CLIENTS * RECORDS)
    held = torch.arange(CLIENTS * RECORDS).reshape(CLIENTS, RECORDS)
    model, generator = learner.first_model(), torch.Generator().manual_seed(0)
    deltas = learner.simulate_examples(model, texts, labels, held, generator=generator)
    view = as_history(learner, model, deltas, {CANDIDATES: texts, CANDIDATE_LABELS: labels}, RECORDS)
    member = torch.zeros(CLIENTS, len(texts)).scatter(1, held, 1.0)
    assert scored(attack, view, {"member": member, "clients": torch.arange(CLIENTS)}) > 0.8
