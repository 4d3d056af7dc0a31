"""Clients that fine-tune a tiny Llama by adapters as users of peft do: for tests of recordings of other systems.

Imports neither fedleak nor its recorder. Each client has words of its own, so that lists of them have one length.
"""

from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, TEXTS, LENGTH, RANK = 400, 3, 8, 4
TARGETS = ("q_proj", "v_proj")
State = dict[str, Tensor]


def save_base(folder: Path) -> None:
    """Writes the network that the server sends to everyone before the training."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        LlamaForCausalLM(config).save_pretrained(folder)


def network(base: Path) -> PeftModel:
    """The network with new adapters, the same for every caller."""
    options = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return get_peft_model(LlamaForCausalLM.from_pretrained(base), options)


def state_of(model: PeftModel) -> State:
    """A copy of the adapters in peft's spelling."""
    return {name: value.detach().clone() for name, value in get_peft_model_state_dict(model).items()}


def load(model: PeftModel, state: State) -> None:
    """Puts adapters, whose numbers may be of another type, into a network."""
    set_peft_model_state_dict(model, {name: value.float() for name, value in state.items()})


def texts_of(client: int) -> Tensor:
    """``(N, L)`` different words of a client; those of another client may be the same."""
    generator = torch.Generator().manual_seed(100 + client)
    return 1 + torch.randperm(VOCABULARY - 1, generator=generator)[: TEXTS * LENGTH].reshape(TEXTS, LENGTH)


def truth_of(client: int) -> dict[str, list[int]]:
    """The words of a client, and those after which a text goes on."""
    texts = texts_of(client)
    return {"words": texts.flatten().tolist(), "read_words": texts[:, :-1].flatten().tolist()}


def train(model: PeftModel, client: int, steps: int = 3) -> None:
    """Plain SGD on all texts of a client."""
    texts = texts_of(client)
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=2.0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=texts, labels=texts).loss.backward()
        optimizer.step()
