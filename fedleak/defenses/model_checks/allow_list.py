"""The received model, or its frozen part, against a list of accepted ones."""

import hashlib
from collections.abc import Collection, Mapping

from torch import Tensor

from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel


class AllowList(ModelCheck):
    """1 if the hash of the received model is not on the client's list of accepted models, else 0.

    For models that are public before the training: the initial global model, a frozen base model, an initial adapter.
    Without a list the statistic is 0.
    """

    name = "allow-list"
    reads_examples = False

    def statistic(self, received: ReceivedModel) -> float:
        if received.allowed is None:
            return 0.0
        return float(model_hash(received.model) not in received.allowed)


def model_hash(model: Mapping[str, Tensor], names: Collection[str] | None = None) -> str:
    """SHA-256 of a model's tensors: their names, types, shapes and bytes, sorted by name.

    Args:
        model: the model.
        names: the tensors that count, e.g. those of a frozen base; None for all.
    """
    digest = hashlib.sha256()
    for name in sorted(model if names is None else names):
        tensor = model[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
