"""Suppression: all clients of a sum but the target get a model whose gradients are zero."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import AtLeastTwo
from fedleak.defenses.model_checks.commitment import Commitment
from fedleak.defenses.model_checks.inactive_units import DeadUnits
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import Model, ModelManipulation, SentModels


@dataclass(frozen=True, kw_only=True, eq=False)
class Suppression(ModelManipulation):
    """Gradient suppression: the target gets the global model, all others of its sum one with two layers of zeros.

    The last two layers of the others' model have only zeros: the last hidden units are 0 and so are the weights after
    them, so that every gradient is zero but that of the last bias. A sum over any number of clients then is the
    target's own update, but for the last bias. It works for every network whose last hidden layer has ReLU.

    Read: the authors' notebook (github.com/pasquini-dario/EludingSecureAggregation, GradientSuppression_POC.ipynb),
    which sets the last four tensors to zero.

    Args:
        participants: clients in each sum, consecutive ones of a cohort as in `SecureSum`; the first is the target.

    References:
        [Pasquini22], section 4.
    """

    name = "suppression"
    does = "sends all clients of a sum but the target a model whose gradients are zero"
    noticed = (
        Notice("client", "at all clients but the target: units that no own record excites", (DeadUnits, WeightLaw)),
        Notice(
            "client",
            "at the target: a model that other clients do not have, if they compare what they received",
            (Commitment,),
        ),
        Notice("auditor", "models by client in the recording"),
    )
    references = ("Pasquini22, section 4",)
    uses_examples = False

    participants: AtLeastTwo

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layers = [name for name, parameter in model.items() if parameter.dim() > 1][-2:]
        require(len(layers) == 2, "a network of at least two layers", ", ".join(layers) or "none", "Set model.network.")
        # Weights and biases of the last two layers are zero in the second model.
        biases = [name.removesuffix("weight") + "bias" for name in layers]
        models = {}
        for name, parameter in model.items():
            is_zero = name in layers or name in biases
            models[name] = torch.stack([parameter, torch.zeros_like(parameter) if is_zero else parameter])
        # The first client of each sum gets the first model.
        index = (torch.arange(len(clients)) % self.participants > 0).long()
        return SentModels(models=models, index=index, clients=clients)
