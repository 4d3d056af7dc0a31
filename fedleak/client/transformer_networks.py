"""Networks of the transformers library with their adapters: built from a configuration, a folder or a seed."""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedleak.client.adapters import AdapterOptions, add_adapters
from fedleak.client.nets.dropout import Dropout
from fedleak.client.transformer_configs import library, offline, quiet, read_configuration
from fedleak.client.transformer_weights import has_weights, read_weights
from fedleak.core.errors import InputError, require
from fedleak.core.memory import memory_bound

PretrainedTask = Literal["causal-lm", "sequence-classification", "image-classification"]
"""What the network predicts: the next token, the class of a text, or that of an image."""
_KINDS = {
    "features": "AutoModel",
    "causal-lm": "AutoModelForCausalLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "image-classification": "AutoModelForImageClassification",
}
_CLASSIFY = ("sequence-classification", "image-classification")
_HEADS = ("pre_classifier", "classifier", "score")
"""Last layers of classifiers, which are new to the task and trained whole next to adapters."""
_MOST_NUMBERS = 2**34
_BYTES_OF_NUMBER = 4
_ATTENTION = "eager"
"""Attention as the library computes it in Python, with gradients of gradients, and without a kernel to fetch."""


@functools.lru_cache(maxsize=2)
def adapted_network(
    config: str, task: PretrainedTask, adapter: AdapterOptions, base_seed: int, folder: Path | None
) -> nn.Module:
    """The network with its adapter, in evaluation mode; kept, because every reading of a recording builds it again.

    Args:
        config: its ``config.json``, as text.
        task: what it predicts.
        adapter: what of it is trained.
        base_seed: seed of its weights where no folder holds them, and of the first adapters.
        folder: folder with weights, or None.

    Raises:
        InputError: there is no such network, memory does not hold it, or it has no such layers.
    """
    with offline(), quiet():
        network = base_network(config, task, adapter, base_seed, folder)
        if adapter.variant != "none":
            heads = None
            if task in _CLASSIFY:
                heads = [name for name in _HEADS if hasattr(network, name)]
            with torch.random.fork_rng(devices=[]):
                # Another seed than that of the weights, so that adapters are independent of them.
                torch.manual_seed(base_seed + 1)
                network = add_adapters(network, adapter, heads=heads)
        # The project's dropout takes its random numbers from the examples, and none from the global generator.
        for module in list(network.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.Dropout):
                    setattr(module, name, Dropout(layer.p))
        network.eval()
        if adapter.variant == "dora" and adapter.dropout:
            # Of DoRA, peft drops inputs in training mode only; elsewhere the project's dropout acts in any mode.
            for layer in network.modules():
                if hasattr(layer, "lora_A"):
                    layer.training = True
        return network


def base_network(
    config_text: str,
    task: PretrainedTask | Literal["features"],
    adapter: AdapterOptions,
    base_seed: int,
    folder: Path | None,
) -> nn.Module:
    """The network without adapters, for ``features`` without a head, see `adapted_network`.

    Of the recording's text, sizes and kinds of layers alone are read.
    """
    config = read_configuration(config_text)
    kind = getattr(library(), _KINDS[task])
    try:
        # On the meta device, values take no memory. Attention is named in each call: left open, the library takes
        # that of the configuration, whose name may be one of a kernel to fetch.
        with torch.device("meta"):
            empty = kind.from_config(config, attn_implementation=_ATTENTION)
        _check_size(empty, adapter)
        with torch.random.fork_rng(devices=[]):
            # Of a folder's network, only what is new to the task is drawn, e.g. the layer of the classes.
            torch.manual_seed(base_seed)
            if folder is not None and has_weights(folder):
                built = type(empty).from_pretrained(
                    None,
                    config=config,
                    state_dict=read_weights(folder),
                    attn_implementation=_ATTENTION,
                    local_files_only=True,
                    use_safetensors=True,
                )
            else:
                built = kind.from_config(config, attn_implementation=_ATTENTION)
    except InputError:
        raise
    except Exception as error:  # whatever the code of a network raises for sizes that do not go together
        raise InputError(
            expected=f"a network for {task} of the transformers library",
            found=f"{getattr(config, 'model_type', 'another')}: {_first_line(error)}",
            way_out="Take a config.json of a network with this task, or another task.",
        ) from None
    network: nn.Module = built.float()
    return network


def _check_size(network: nn.Module, adapter: AdapterOptions) -> None:
    """Checks that memory holds a network and its adapters, before any is taken.

    Raises:
        InputError: it does not.
    """
    size = sum(value.numel() for value in tensors_of(network).values()) + adapter.most_added(network)
    most = min(_MOST_NUMBERS, memory_bound() // _BYTES_OF_NUMBER)
    require(
        size <= most,
        f"a network of at most {most} numbers with its adapters, half of what this machine's memory holds",
        str(size),
        "Take a smaller one, or a machine with more memory.",
    )


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a network, tied ones under each of their names."""
    return {
        **dict(network.named_parameters(remove_duplicate=False)),
        **dict(network.named_buffers(remove_duplicate=False)),
    }


def tensor_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors and of their names, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        content: Any = tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        digest.update(content)  # the array's own memory: a table of words is no small copy
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
