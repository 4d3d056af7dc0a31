"""Base class of manipulations of the model that is sent, so that updates, or their sums, hold single records."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import NonNegativeInt, UnitInterval
from fedleak.server.deviation import Deviation

Model = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class SentModels:
    """The models of one round, and which client gets which of them.

    Attributes:
        models: ``(M, *shape)`` by parameter.
        index: ``(C,)`` int64 number of each client's model.
        clients: ``(C,)`` int64 number of each client.
    """

    models: Mapping[str, Tensor]
    index: Tensor
    clients: Tensor

    @classmethod
    def same(cls, model: Model, clients: Tensor) -> Self:
        """One model for all clients."""
        models = {name: value[None] for name, value in model.items()}
        return cls(models=models, index=torch.zeros_like(clients), clients=clients)

    @property
    def first(self) -> dict[str, Tensor]:
        """The model of number 0, ``shape`` each: the one that is recorded as the global model."""
        return {name: value[0] for name, value in self.models.items()}

    def __len__(self) -> int:
        return len(next(iter(self.models.values())))

    def numbers(self, clients: Tensor) -> Tensor:
        """``(K,)`` number of the model of each of the clients ``(K,)``, which are among `clients`."""
        order = self.clients.argsort()
        return self.index[order[torch.searchsorted(self.clients[order], clients)]]

    def of(self, clients: Tensor) -> dict[str, Tensor]:
        """``(K, *shape)`` model of each of the clients ``(K,)``, which are among `clients`."""
        numbers = self.numbers(clients)
        return {name: parameter[numbers] for name, parameter in self.models.items()}


@dataclass(frozen=True)
class FirstLayer:
    """Names of the parameters of a linear first layer with a bias, and of the linear layer after it.

    Attributes:
        weight: ``(N, D)``, the weights of N units.
        bias: ``(N,)``.
        after: ``(K, N)``, the weight of the next layer.
    """

    weight: str
    bias: str
    after: str

    @classmethod
    def of(cls, model: Model) -> Self:
        """The first layer of a model.

        Raises:
            InputError: the model does not begin with two linear layers of which the first has a bias.
        """
        weights = [name for name, parameter in model.items() if parameter.dim() > 1][:2]
        shapes = [tuple(model[name].shape) for name in weights]
        bias = weights[0].removesuffix("weight") + "bias" if weights else ""
        # Two matrices, of which the second has a column for each row of the first.
        is_linear = len(shapes) == 2 and [len(shape) for shape in shapes] == [2, 2]
        is_right = is_linear and shapes[1][1] == shapes[0][0] and bias in model
        layers = ", ".join(f"{name} {shape}" for name, shape in zip(weights, shapes, strict=True))
        require(
            is_right,
            "a network of a linear first layer with a bias, ReLU and a linear layer",
            layers or "no layer",
            "Set model.network.name: mlp; convolutions are not turned into the identity.",
        )
        return cls(weights[0], bias, weights[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelManipulation(Deviation, abc.ABC):
    """Base class of manipulations of the model that is sent, as pure functions of what the server has.

    A subclass gives `manipulated`. In a training, a round with a manipulation does not change the global model, so that
    the next round's clients get a model that was trained by honest rounds only.

    Args:
        first_round: number, from 0, of the first round with the manipulation; earlier ones are honest.
        strength: share s of the way from the global model g to the manipulated one m: ``g + s (m - g)`` is sent.
    """

    part = "sends"
    uses_examples = True
    """Whether `manipulated` needs the server's own examples."""
    takes_records: ClassVar[bool] = False
    """Whether these are records themselves, ``(M, *shape)``, and no inputs of the first layer."""
    first_round: NonNegativeInt = 0
    strength: UnitInterval = 1.0

    @abc.abstractmethod
    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        """The models in place of the global one.

        Args:
            model: the global model, ``shape`` each.
            examples: ``(M, D)`` inputs of the first layer for the server's own examples; ``(0, D)`` for none.
            clients: ``(C,)`` numbers of the round's clients, in the order in which secure aggregation sums them.
            generator: source of randomness.

        Raises:
            InputError: the network, the examples or the number of clients do not fit.
        """

    def sent(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        """The models that are sent, see `manipulated` and `strength`."""
        manipulated = self.manipulated(model, examples, clients, generator=generator)
        if self.strength == 1:
            return manipulated
        # g + s (m - g)
        mixed = {}
        for name, parameter in manipulated.models.items():
            mixed[name] = model[name] + self.strength * (parameter - model[name])
        return SentModels(models=mixed, index=manipulated.index, clients=manipulated.clients)


def changed(model: Model, **changes: Tensor) -> dict[str, Tensor]:
    """The model with other values of some parameters, in the type and on the device of the old ones."""
    parameters = dict(model)
    for name, parameter in model.items():
        if name in changes:
            parameters[name] = changes[name].to(parameter)
    return parameters


def enough(examples: Tensor, least: int, name: str) -> Tensor:
    """The server's examples ``(M, D)`` in float64.

    Raises:
        InputError: they are fewer than `least`.
    """
    if len(examples) < least:
        raise InputError(
            expected=f"at least {least} examples of the server's own, for {name}",
            found=str(len(examples)),
            way_out="Raise data.auxiliary_per_class.",
        )
    return examples.double()
