"""Quantile bias: random rows, and one bias with which a unit is active for one record of a batch on average."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fedleak.core.ranges import AtLeastTwo
from fedleak.defenses.model_checks.inactive_units import DeadUnits
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import FirstLayer, Model, ModelManipulation, SentModels, changed, enough


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantileBias(ModelManipulation):
    """QBI: weights N(0, 1) and the bias ``Phi^-1(1/B) sqrt(D)``, so that a unit is active for one of B records.

    For D independent inputs of mean 0 and variance 1, a unit's input is N(0, D), so that it is above 0 with probability
    ``1/B``. The publication standardises its images, each channel by its own mean and standard deviation; here, the
    mean m and deviation s of all inputs of the server's own examples are built into the layer, which is the same
    function: rows ``w / s`` and biases ``b - m sum(w) / s``.

    Read: the abstract and the authors' code (github.com/mvnowak/QBI, core.py and exp_CIFAR-10_QBI.py). The next layer
    is that of the global model.

    Args:
        records: B, the number of records in the update or in the sum.

    References:
        [Nowak24].
    """

    name = "quantile-bias"
    does = "sends random rows in the first layer, with one bias for which a unit is active for one record on average"
    noticed = (
        Notice(
            "client",
            "weights of another law than before, a large step, and units that few own records excite",
            (WeightLaw, ServerStep, DeadUnits),
        ),
    )
    references = ("Nowak24, section 4",)

    records: AtLeastTwo

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        layer = FirstLayer.of(model)
        inputs = enough(examples, 1, self.name)
        # Rows w / s with w of N(0, 1), and biases Phi^-1(1/B) sqrt(D) - m sum(w) / s.
        draws = torch.randn(model[layer.weight].shape, generator=generator, dtype=torch.float64)
        weight = draws / inputs.std()
        level = torch.tensor(1 / self.records, dtype=torch.float64)
        threshold = torch.special.ndtri(level) * weight.shape[1] ** 0.5
        bias = threshold - inputs.mean() * weight.sum(1)
        sent = changed(model, **{layer.weight: weight, layer.bias: bias})
        return SentModels.same(sent, clients)
