"""A tiny GPT-2 whose adapter was made to keep texts, and the updates of clients with random texts."""

import functools
from typing import Any

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.server.memory_adapter import MemoryAdapter
from tests.transformer_toys import VOCABULARY, algorithm, texts

WORDS = 6
GPT2: dict[str, Any] = {
    **{"model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": 96, "n_inner": 600, "n_layer": 2, "n_head": 4},
    **{"n_positions": 16, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    **{"bos_token_id": None, "eos_token_id": None},
}
ADAPTER: dict[str, Any] = {"rank": 64, "targets": ("c_fc",)}


def fine_tuned(**local: Any) -> PretrainedAlgorithm:
    """Clients that train the adapter of the feed-forward layers, in one step by default."""
    return algorithm(LocalTraining(**{"learning_rate": 0.5, **local}), GPT2, **ADAPTER)


@functools.cache
def states(seed: int = 1, count: int = 600) -> Tensor:
    """``(M, L, D)`` inputs of the first adapted layer at all places but the last, for texts of the server's own."""
    own = fine_tuned()
    return own.adapted_inputs(own.first_model(), texts(1, count, WORDS, seed)[0], layers=1)[0].vectors[:, :-1]


def memory_model(records: int, **options: Any) -> dict[str, Tensor]:
    """The adapters that the server sends."""
    manipulation = MemoryAdapter(records=records, **options)
    generator = torch.Generator().manual_seed(2)
    return manipulation.sent(fine_tuned().first_model(), states(), torch.arange(2), generator=generator).first
