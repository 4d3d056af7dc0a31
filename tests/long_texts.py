"""Clients that fine-tune adapters and the head of a classifier on long texts, which differ in length."""

import dataclasses
import functools
import json
from typing import Any, Literal

import torch

from fedleak.client.adapters import AdapterOptions
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.core.history import History
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES
from tests.membership_toys import Toy, as_history
from tests.transformer_toys import LLAMA, ONE_STEP, VOCABULARY

CLIENTS, EACH, CLASSES = 3, 6, 3
SHORTEST, LONGEST = 40, 60
RANK = 16
"""Rows of an adapter: more than the texts of a client, and many fewer than their tokens."""
BERT: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
Kind = Literal["decoder", "encoder"]
NETWORKS = {"decoder": LLAMA, "encoder": BERT}
TARGETS = {"decoder": ("q_proj", "v_proj"), "encoder": ("query", "value")}


def classifier(kind: Kind, local: LocalTraining = ONE_STEP) -> PretrainedAlgorithm:
    config = NETWORKS[kind] | {"num_labels": CLASSES, "pad_token_id": 0}
    return PretrainedAlgorithm(
        config=json.dumps(config),
        task="sequence-classification",
        local=local,
        adapter=AdapterOptions(rank=RANK, targets=TARGETS[kind]),
    )


@functools.cache
def toy(kind: Kind, local: LocalTraining = ONE_STEP) -> Toy:
    """Half of a pool is held by clients, the other half by nobody."""
    own, generator = classifier(kind, local), torch.Generator().manual_seed(5)
    size = 2 * CLIENTS * EACH
    pool = torch.randint(1, VOCABULARY, (size, LONGEST), generator=generator)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (size, 1), generator=generator)
    pool = pool * (torch.arange(LONGEST) < lengths)
    classes = torch.randint(CLASSES, (size,), generator=generator)
    model = own.first_model()
    for name, value in model.items():
        # A first B is zero, and A then has no gradient.
        if "lora_B" in name:
            model[name] = 0.05 * torch.randn(value.shape, generator=generator)
    held = torch.randperm(size, generator=generator)[: CLIENTS * EACH].reshape(CLIENTS, EACH)
    member = torch.zeros(CLIENTS, size, dtype=torch.bool)
    member[torch.arange(CLIENTS)[:, None], held] = True
    deltas = own.simulate_examples(model, pool, classes, held, generator=generator)
    view = as_history(own, model, deltas, {CANDIDATES: pool, CANDIDATE_LABELS: classes}, EACH)
    return view, {"member": member, "clients": torch.arange(CLIENTS)}


def with_more_padding(view: History) -> History:
    """The view whose candidates have more places of padding."""
    candidates = torch.nn.functional.pad(view.auxiliary[CANDIDATES], (0, 4))
    return dataclasses.replace(view, auxiliary={**view.auxiliary, CANDIDATES: candidates})
