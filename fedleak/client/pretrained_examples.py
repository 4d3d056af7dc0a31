"""Examples of clients that fine-tune a pretrained network: their fields, what the network takes, and their losses."""

import torch
from torch import Tensor
from torch.nn import functional

from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.network_tokens import exchanged
from fedleak.client.transformer_networks import PretrainedTask

TOKENS, LABEL, IMAGE = "tokens", "label", "image"
"""Fields of an example: ``(L,)`` token numbers padded with 0, its class, and pixels ``(channels, height, width)``."""


def network_arguments(task: PretrainedTask, examples: Parameters, like: Tensor, padding: int = 0) -> dict[str, Tensor]:
    """Arguments of a network for examples; pixels in the type of another tensor, and its own number of padding."""
    if task == "image-classification":
        pixels = examples[IMAGE].to(like)
        if examples[IMAGE].dtype == torch.uint8:
            pixels = pixels / 255
        return {"pixel_values": pixels}
    numbers = exchanged(examples[TOKENS], padding)
    if task == "sequence-classification":
        return {"input_ids": numbers, "attention_mask": (examples[TOKENS] > 0).long()}
    return {"input_ids": numbers}


def token_logits(logits: Tensor, padding: int) -> Tensor:
    """Logits ``(N, L, V)`` of a network, of the tokens as examples number them."""
    if padding == 0:
        return logits
    return logits[..., exchanged(torch.arange(logits.shape[-1], device=logits.device), padding)]


def example_losses(task: PretrainedTask, logits: Tensor, examples: Parameters) -> tuple[Tensor, Tensor]:
    """Cross-entropies ``(N,)``, or ``(N, L - 1)`` of the tokens after the first, and which of them count."""
    if task != "causal-lm":
        losses = functional.cross_entropy(logits, examples[LABEL].long(), reduction="none")
        return losses, torch.ones_like(losses, dtype=torch.bool)
    # The logits after a token predict the next one; those after the last token predict nothing.
    following = examples[TOKENS][:, 1:]
    losses = functional.cross_entropy(logits[:, :-1].flatten(0, 1), following.flatten(), reduction="none")
    return losses.reshape(following.shape), following > 0


def tokens_in_loss(task: PretrainedTask, inputs: Tensor) -> Tensor:
    """``(M, L)`` or, of images, ``(M, 1)`` bool: tokens that have a part in the loss of their record."""
    if task == "causal-lm":
        return functional.pad(inputs[:, 1:] > 0, (0, 1))
    if task == "sequence-classification":
        return inputs > 0
    return torch.ones(len(inputs), 1, dtype=torch.bool)
