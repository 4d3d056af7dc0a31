"""Tiny transformers of random weights with adapters, and the updates of clients with random texts."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from fedleak.attacks.words.adapter_words import AdapterWords
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.client.adapters import AdapterOptions
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.pretrained_examples import TOKENS
from fedleak.commands.shared.open_recording import open_recording
from fedleak.core.view import RoundView
from fedleak.recordings.recorded_learner import recorded_learner
from tests.attacks.runs import run

VOCABULARY, WIDTH = 400, 64
LLAMA: dict[str, Any] = {
    **{"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64},
}
QUERY_AND_VALUE, RANK = ("q_proj", "v_proj"), 4
ONE_STEP = LocalTraining(learning_rate=0.5, batch_size=None)


def algorithm(
    local: LocalTraining = ONE_STEP, config: dict[str, Any] = LLAMA, seed: int = 0, **adapter: Any
) -> PretrainedAlgorithm:
    options = AdapterOptions(**{"rank": RANK, "targets": QUERY_AND_VALUE, **adapter})
    return PretrainedAlgorithm(config=json.dumps(config), local=local, base_seed=seed, adapter=options)


def coherent_base(folder: Path, *, mean: float, decay: float) -> PretrainedAlgorithm:
    """Clients of a network whose table of words is as coherent as a trained one's, which a folder holds.

    Args:
        folder: where its weights are written.
        mean: length of the vectors' common mean over the mean length of what they have of their own.
        decay: the k-th singular value of the table is ``k^-decay``.
    """
    generator = torch.Generator().manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(VOCABULARY, WIDTH, generator=generator), full_matrices=False)
    table = left * torch.arange(1.0, WIDTH + 1) ** -decay @ right
    common = torch.nn.functional.normalize(torch.randn(WIDTH, generator=generator), dim=0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**LLAMA))  # type: ignore[no-untyped-call]
    network.get_input_embeddings().weight.data.copy_(table / table.norm(dim=1).mean() + mean * common)
    network.save_pretrained(folder)
    return dataclasses.replace(algorithm(), config=(folder / "config.json").read_text(encoding="utf-8"), folder=folder)


def twin_base(folder: Path, *, distance: float = 0.0, **adapter: Any) -> PretrainedAlgorithm:
    """Clients of a network in which word 300 + i has the vector of word i, as reserved words of real networks have.

    Args:
        folder: where its weights are written.
        distance: of the two vectors, in standard deviations of their numbers.
        adapter: options of the adapters.
    """
    generator = torch.Generator().manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(**LLAMA))  # type: ignore[no-untyped-call]
    table = network.get_input_embeddings().weight.data
    table.copy_(0.02 * torch.randn(table.shape, generator=generator))
    table[300:] = table[:100] + 0.02 * distance * torch.randn(100, WIDTH, generator=generator)
    network.save_pretrained(folder)
    config = (folder / "config.json").read_text(encoding="utf-8")
    return dataclasses.replace(algorithm(**adapter), config=config, folder=folder)


@functools.cache
def moved_model(seed: int = 0, **adapter: Any) -> dict[str, Tensor]:
    """A global model whose B is no longer zero."""
    generator = torch.Generator().manual_seed(seed + 100)
    model = algorithm(seed=seed, **adapter).first_model()
    return {
        name: 0.05 * torch.randn(value.shape, generator=generator) if "lora_B" in name else value
        for name, value in model.items()
    }


def texts(clients: int, sentences: int, length: int = 8, seed: int = 0) -> Tensor:
    """``(C, N, L)`` random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (clients, sentences, length), generator=generator)


def view_of(own: PretrainedAlgorithm, tokens: Tensor, model: dict[str, Tensor] | None = None) -> RoundView:
    """Updates of clients with texts ``(C, N, L)``."""
    model = own.first_model() if model is None else model
    counts = torch.full((len(tokens),), tokens.shape[1])
    cohort = Cohort(0, torch.arange(len(tokens)), {TOKENS: tokens}, torch.ones(tokens.shape[:2], dtype=torch.bool))
    deltas = own.train(model, cohort).deltas
    return RoundView(
        round=0, pseudonyms=torch.arange(len(tokens)), example_counts=counts, deltas=deltas, model=model, algorithm=own
    )


def words_read(tokens: Tensor) -> list[set[int]]:
    """Words of each client that a text goes on after."""
    return [set(own[:, :-1].flatten().tolist()) for own in tokens]


def found_and_read(deltas: Path, base: Path) -> list[tuple[set[int], set[int]]]:
    """Words that are found in a recording of `tests.adapter_clients`, and those read, of each client in each round."""
    adapter = {"rank": RANK, "targets": list(QUERY_AND_VALUE)}
    recording = open_recording(deltas, "Pretrained", {"path": str(base), "adapter": adapter})
    pairs = []
    for view in recording.views(learner=recorded_learner(recording)):
        estimate = run(AdapterWords(), view, WordSetEstimate)
        for found, read in zip(estimate.decisions, recording.truth(view)["read_words"], strict=True):
            pairs.append((set(found.nonzero().flatten().tolist()), set(read.tolist())))
    return pairs


def f1(found: set[int], true: set[int]) -> float:
    return 2 * len(found & true) / max(len(found) + len(true), 1)
