"""Clients that train a small transformer decoder on texts.

References:
    Radford, Wu, Child, Luan, Amodei and Sutskever, "Language Models are Unsupervised Multitask Learners", 2019, section
    2.3.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from client.algorithm import Shapes
from client.engine.fast.gradients import Parameters
from client.nets.decoder import Decoder
from client.text import EMBEDDING, OUTPUT, PLACE, TextAlgorithm, TextOptions
from protocol.errors import require
from protocol.ranges import PositiveInt

BODY = "decoder"
"""Name of the network between the word table and the last layer."""


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


@dataclass(frozen=True, kw_only=True)
class DecoderAlgorithm(TextAlgorithm):
    """Clients that train a decoder to predict the next words or ratings.

    Attributes:
        network: sizes and task.
    """

    name: ClassVar[str] = "decoder"

    network: DecoderOptions

    @property
    def template(self) -> Decoder:
        return self.network.body()

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

    def states(self, parameters: Parameters, examples: Parameters) -> Tensor:
        places = examples[PLACE] if self.rates else examples[PLACE][:, :-1]
        own = {n.removeprefix(f"{BODY}."): v for n, v in parameters.items() if n.startswith(f"{BODY}.")}
        made: Tensor = functional_call(self.body, own, (functional.embedding(places, parameters[EMBEDDING]),))
        return made.transpose(0, 1)

    def fast(self) -> None:
        return None
