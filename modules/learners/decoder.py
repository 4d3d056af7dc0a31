"""Federated training of a small transformer decoder on texts.

References:
    Radford, Wu, Child, Luan, Amodei and Sutskever, "Language Models are Unsupervised Multitask Learners", 2019, section
    2.3, for the network; Petrov, Dimitrov, Baader, Müller and Vechev, "DAGER: Exact Gradient Inversion for Large
    Language Models", NeurIPS 2024, arXiv:2405.15586, for the attack on its updates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from client.engine.fast.gradients import Parameters
from client.engine.local_hyperparameters import LocalTraining
from client.nets.decoder import Decoder, DecoderLayer, draw_weights
from modules.federated import Federation, Unpack
from modules.learners.text import (
    EMBEDDING,
    OUTPUT,
    PLACE,
    TextLearner,
    TextOptions,
    TextSimulator,
    TextTask,
    last_states,
    with_bias,
    with_one,
)
from modules.simulator import Shapes
from protocol.errors import require
from protocol.ranges import PositiveInt
from protocol.seeding import PERSISTENT, generator_for

BODY = "decoder"
"""Name of the network between the word table and the last layer."""
DECODER_LOCAL = LocalTraining(learning_rate=0.1, batch_size=32)
"""Local training by default."""


@dataclass(frozen=True, kw_only=True)
class DecoderOptions(TextOptions):
    """Sizes of a decoder; `embedding` is the length d of all its vectors, `hidden` the hidden units of each layer.

    Attributes:
        layers: number of layers.
        heads: heads of each layer's attention.
        places: largest number of words of a text.
    """

    embedding: PositiveInt = 256
    hidden: PositiveInt = 1024
    layers: PositiveInt = 2
    heads: PositiveInt = 4
    places: PositiveInt = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            min(self.layers, self.heads, self.places) >= 1 and self.embedding % max(self.heads, 1) == 0,
            "layers, heads and places above 0, and an embedding that is a multiple of the heads",
            f"{self.layers}, {self.heads}, {self.places} and an embedding of {self.embedding}",
            "GPT-2 has 12, 12 and 1024, and 768.",
        )

    @property
    def states(self) -> int:
        return self.embedding

    def body(self) -> Decoder:
        """The network, with torch's default weights."""
        sizes = {"layers": self.layers, "heads": self.heads, "hidden": self.hidden, "places": self.places}
        return Decoder(width=self.embedding, **sizes)


class DecoderTask(TextTask):
    """Mean cross-entropy of the words after the first, or mean squared error of the ratings.

    Args:
        network: sizes.
    """

    network: DecoderOptions

    @property
    def template(self) -> Decoder:
        return self.network.body()

    def states(self, parameters: Parameters, examples: Parameters) -> Tensor:
        places = examples[PLACE] if self.rates else examples[PLACE][:, :-1]
        own = {n.removeprefix(f"{BODY}."): v for n, v in parameters.items() if n.startswith(f"{BODY}.")}
        made: Tensor = functional_call(self.body, own, (functional.embedding(places, parameters[EMBEDDING]),))
        return made.transpose(0, 1)

    def fast(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class DecoderSimulator(TextSimulator):
    """Simulator of clients of `FederatedDecoder`: an `ExampleSimulator` and a `NextWordSimulator`.

    Attributes:
        network: sizes and task.
    """

    name: ClassVar[str] = "decoder"

    network: DecoderOptions

    @property
    def task(self) -> DecoderTask:
        return DecoderTask(self.network)

    def network_shapes(self, held: Shapes) -> dict[str, tuple[int, ...]]:
        sizes, width = self.network, self.network.embedding
        with torch.device("meta"):
            body = {f"{BODY}.{name}": tuple(value.shape) for name, value in sizes.body().named_parameters()}
        return {
            EMBEDDING: (sizes.vocabulary, width),
            f"{OUTPUT}.weight": (sizes.outputs, width),
            f"{OUTPUT}.bias": (sizes.outputs,),
            **body,
        }

    def layer_gradients(self, deltas: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        first = f"{BODY}.layers.0"
        attention = [f"{first}.{part}" for part in ("query", "key", "value")]
        return with_bias(deltas, attention), with_bias(deltas, [f"{first}.enter"]), with_bias(deltas, [OUTPUT])

    def word_inputs(self, model: Mapping[str, Tensor], place: int) -> Tensor:
        norm = f"{BODY}.layers.0.norm"
        vectors = (model[EMBEDDING] + model[f"{BODY}.position.weight"][place]).double()
        scale, shift = (model[f"{norm}.{part}"].double() for part in ("weight", "bias"))
        return with_one(functional.layer_norm(vectors, vectors.shape[1:], scale, shift))

    def prefix_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        return torch.zeros(max(len(prefixes), 1), self.network.embedding + 1, dtype=torch.float64)

    def deeper_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        body, table = self._body(model), model[EMBEDDING].double()
        padded = functional.pad(prefixes[:, :-1], (0, 1))  # `unique` takes no empty rows
        before, parent = torch.unique(padded, dim=0, return_inverse=True)
        before = before[:, :-1]
        words, word = torch.unique(prefixes[:, -1], return_inverse=True)
        places = body.position.weight
        layer = body.layers[0]
        assert isinstance(layer, DecoderLayer)
        seen = layer.between(table[before] + places[: before.shape[1]], table[words] + places[before.shape[1]])
        return with_one(seen[parent, word])

    def last_inputs(self, model: Mapping[str, Tensor], prefixes: Tensor) -> Tensor:
        made: Tensor = self._body(model)(functional.embedding(prefixes, model[EMBEDDING].double()))
        return with_one(made[:, -1])

    def _body(self, model: Mapping[str, Tensor]) -> Decoder:
        """The network with the weights of a model, in double precision."""
        with torch.device("meta"):
            body = self.network.body()
        own = {n.removeprefix(f"{BODY}."): v.double() for n, v in model.items() if n.startswith(f"{BODY}.")}
        body.load_state_dict(own, assign=True)
        return body.requires_grad_(False)


class FederatedDecoder(TextLearner):
    """Federated transformer decoder that predicts the next word or a rating.

    Args:
        network: sizes and task.
        local: how clients train.
        federation: arguments of `FederatedModule`.
    """

    options: DecoderOptions
    objective = DecoderTask
    body = BODY
    decoder: Decoder

    def __init__(
        self,
        *,
        network: DecoderOptions = DecoderOptions(),
        local: LocalTraining = DECODER_LOCAL,
        **federation: Unpack[Federation],
    ) -> None:
        super().__init__(network=network, local=local, **federation)
        generator = generator_for(self.seed, "global-model", PERSISTENT)
        draw_weights(self.decoder, generator)
        with torch.no_grad():
            for value in (self.embedding.weight, self.output.weight):
                value.normal_(std=0.02, generator=generator)
            self.output.bias.zero_()

    def simulator(self) -> DecoderSimulator:
        return DecoderSimulator(network=self.options, local=self.local, update_l1=self.update_l1)

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L)`` token numbers -> logits ``(B, L - 1, V)`` of the words after the first, or ratings ``(B,)``."""
        predicted: Tensor
        if self.options.task == "rating":
            states = self.decoder(self.embedding(tokens)).transpose(0, 1)
            predicted = self.output(last_states(states, tokens.T))[:, 0]
        else:
            predicted = self.output(self.decoder(self.embedding(tokens[:, :-1])))
        return predicted
