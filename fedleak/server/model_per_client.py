"""A model of its own for each client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.server.deviation import Deviation, Notice


@dataclass(frozen=True, kw_only=True)
class ModelPerClient(Deviation):
    """A model of its own for each client of every round, drawn anew, so that updates cannot be averaged.

    RAIFLE's experiments do so: `ImageRanker` always does, and `FPDGD` with `ranker_per_client`. The recording holds the
    models.

    References:
        [Pham25], sections V.B and V.C.
    """

    name = "model-per-client"
    part = "sends"
    does = "sends each client a model of its own instead of the global model"
    noticed = (
        Notice("client", "a model that no other client has, if two of them compare what they received"),
        Notice("auditor", "models by client in the recording, and a global model that does not change"),
    )
    references = ("Pham25, sections V.B and V.C",)


def stack_models(drawn: Sequence[Mapping[str, Tensor]], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Models of the clients, ``(C, *shape)`` for each parameter of `like`, with its type and device."""
    stacked = {}
    for name, parameter in like.items():
        if drawn:
            stacked[name] = torch.stack([model[name] for model in drawn]).to(parameter)
        else:
            stacked[name] = parameter.new_zeros(0, *parameter.shape)
    return stacked
