"""DAGER's code for GPT-2: the part of its main program's `reconstruct` that attacks, without that which evaluates."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GPT2Config, GPT2LMHeadModel

from bench.authors.drivers.sources import SOURCES, authors_modules
from bench.authors.host import Arrays, part

_COMMAND = (
    "attack.py --dataset cola --task next_token_pred --split val --n_inputs 1 --l1_filter all --l2_filter non-overlap "
    "--model_path gpt2 --device cpu"
)
"""That of their script for GPT-2, on a CPU."""
_END = 50256
"""GPT-2's end of text, which also pads."""


def prepare(inputs: Arrays) -> Callable[[], Arrays]:
    """A GPT-2 of the transformers library with given weights, in the place of the downloaded one."""
    batch = ["--batch_size", str(int(inputs["examples"])), "--rank_tol", str(float(inputs["tolerance"]))]
    sys.argv = [*_COMMAND.split(), *batch]
    attack, models, partial = authors_modules(SOURCES, "attack", "utils.models", "utils.partial_models")
    args, network = attack.args, _gpt2(part(inputs, "model"), int(inputs["heads"]))
    partial.add_partial_forward_gpt2(network.transformer)

    wrapper = models.ModelWrapper.__new__(models.ModelWrapper)  # its __init__ downloads
    wrapper.args, wrapper.model = args, network
    wrapper.tokenizer = argparse.Namespace(model_max_length=512)
    wrapper.start_token, wrapper.eos_token, wrapper.pad_token = None, _END, _END
    wrapper.emb_size, wrapper.layer_ids = network.config.n_embd, list(range(4, 4 + 12 * network.config.n_layer, 12))
    wrapper.embeddings_weight_nopos = network.transformer.wte.weight.unsqueeze(0)

    @torch.no_grad()
    def run() -> Arrays:
        found = [_sentences(attack, args, wrapper, gradients) for gradients in inputs["gradients"]]
        width = max((len(one) for own in found for one in own), default=1)
        most = max(map(len, found))
        padded = np.zeros((len(found), most, width), np.int64)
        for victim, own in enumerate(found):
            for row, one in enumerate(own):
                padded[victim, row, : len(one)] = one
        return {"sentences": padded}

    return run


def _gpt2(weights: Arrays, heads: int) -> Any:
    """GPT-2 with the weights of fedleak's decoder: transposed, and with query, key and value as one matrix."""
    layers = 1 + max(int(name.split(".")[2]) for name in weights if ".layers." in name)
    (words, width), places = weights["embedding.weight"].shape, len(weights["decoder.position.weight"])
    sizes = {"vocab_size": words, "n_positions": places, "n_embd": width, "n_layer": layers, "n_head": heads}
    network: Any = GPT2LMHeadModel(GPT2Config(**sizes, activation_function="gelu"))
    network.eval()
    own = {"wte.weight": weights["embedding.weight"], "wpe.weight": weights["decoder.position.weight"]}
    for kind in ("weight", "bias"):
        own[f"ln_f.{kind}"] = weights[f"decoder.norm.{kind}"]
        for n in range(layers):
            ours, theirs = f"decoder.layers.{n}.", f"h.{n}."
            attention = np.concatenate([weights[f"{ours}{one}.{kind}"] for one in ("query", "key", "value")])
            own[f"{theirs}attn.c_attn.{kind}"] = attention.T
            for name, layer in (("attn.c_proj", "merge"), ("mlp.c_fc", "enter"), ("mlp.c_proj", "leave")):
                own[f"{theirs}{name}.{kind}"] = weights[f"{ours}{layer}.{kind}"].T
            for name, layer in (("ln_1", "norm"), ("ln_2", "hidden_norm")):
                own[f"{theirs}{name}.{kind}"] = weights[f"{ours}{layer}.{kind}"]
    network.transformer.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in own.items()})
    return network


def _sentences(attack: Any, args: argparse.Namespace, wrapper: Any, gradients: NDArray[np.generic]) -> list[list[int]]:
    """The steps of `reconstruct` from the gradients to the sentences that both layers accept."""
    by_parameter = {place: torch.from_numpy(one) for place, one in zip(wrapper.layer_ids, gradients, strict=True)}
    _, spans = wrapper.get_matrices_expansions(by_parameter, B=None, tol=args.rank_tol)
    _, words, _, _ = attack.filter_l1(args, wrapper, spans)
    if not words:
        return []
    sentences, scores, _, _ = attack.filter_decoder(args, wrapper, spans, words, max_ids=-1)
    return [one for one, score in zip(sentences, scores, strict=True) if score < args.l2_span_thresh]
