"""Token imprint: a transformer whose feed-forward layers keep the inputs of single tokens, as Decepticons."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor
from torch.nn import functional

from fedleak.core.errors import require
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.defenses.model_checks.allow_list import AllowList
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import Model, ModelManipulation, SentModels, changed

_SKEW = 1e8
"""Length of the query, so that each place attends to one other only; as published."""
_LOWEST = -10.0
"""First edge, below all measured numbers; as published."""
_KEY = 2.0
"""Length of the first place's key, over the longest of a word's numbers in the same columns."""
_NORM_EPS = 1e-5
"""Term in the denominator of GPT-2's normalisations."""


@dataclass(frozen=True)
class Gpt2Layers:
    """Names of the parameters of a GPT-2.

    Attributes:
        words: ``(V, D)``, vectors of the words.
        places: ``(P, D)``, vectors of the places.
        blocks: prefixes of its blocks.
    """

    words: str
    places: str
    blocks: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> Self:
        """The layers of a model.

        Raises:
            InputError: it is no GPT-2, or not trained whole.
        """
        words = next((name for name in model if name.endswith("transformer.wte.weight")), "")
        stem = words.removesuffix("wte.weight")
        blocks = list[str]()
        while words and f"{stem}h.{len(blocks)}.mlp.c_fc.bias" in model:
            blocks.append(f"{stem}h.{len(blocks)}.")
        require(
            blocks,
            "a GPT-2 that is trained whole, whose feed-forward layers have biases",
            ", ".join([*model][:3]),
            "Set model.adapter.variant: none and the path of a GPT-2; a Llama has no biases to measure with.",
        )
        return cls(words, f"{stem}wpe.weight", tuple(blocks))

    def units(self, values: Model) -> list[tuple[Tensor, Tensor]]:
        """``(H, D)`` weights and ``(H,)`` biases of each block's first feed-forward layer."""
        return [(values[f"{block}mlp.c_fc.weight"].T, values[f"{block}mlp.c_fc.bias"]) for block in self.blocks]

    def first_states(self, model: Model, words: Tensor) -> Tensor:
        """``(..., D)`` normalised input of the first attention for words ``(...)`` at the first place."""
        return normalised(model[self.words][words].double() + model[self.places][0].double())


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenImprint(ModelManipulation):
    """Feed-forward layers that sort tokens into bins by one measured number, after an attention that marks the text.

    For a GPT-2 of width D that clients train whole. With v the number of `marks`, its numbers have parts: 0 to v - 1
    are cleared for the mark of a text, v to 2 v - 1 tell the first place from all others, v to D - 2 are measured, and
    D - 1 is the way back of the gradient. (1) In the first attention every place attends to the first one only, whose
    numbers v to 2 v - 1 are copied to 0 to v - 1: all places of a text have the mark of its first word. All other
    attentions give zero. (2) Every unit i of all first feed-forward layers has the weights ``s m`` and the bias
    ``-s e_i``: with a random m and the input u, it is above 0 if m^T u is above the edge e_i. Edges are the quantiles
    of m^T u among the server's texts, taken for normal, one after another in all blocks. (3) Second feed-forward layers
    add the units, times f / H, to number D - 1 alone, so that what is measured is the same in all blocks, and all units
    of a block get the same gradient for a token. With ReLU the gradient of unit i is then that of unit i + 1 and of
    the tokens in its bin, see `fedleak.attacks.reconstruction.Decepticons`.

    Different from the authors' code: the first place has a key with alternating signs that is longer than a word's
    numbers there, and all others its opposite, so that the first place always has the highest score (the authors divide
    vectors of places by their length in these columns); each block's first edge is the last one of the block before, so
    that no two blocks are subtracted; normalisations are the identity. The scale s is 1 and the flow f is 1e-4 there,
    for clients that send gradients. ReLU has no scale, so that s and 1 / f can be as small as rounding asks for:
    clients here send the difference of two models, of which each number is rounded to its own size.

    Args:
        marks: v, as published.
        scale: s.
        flow: f.

    References:
        [Fowl23], section 3, and the authors' code in breaching.
    """

    name = "token-imprint"
    does = "sends a transformer whose feed-forward layers sort tokens into bins, each read from the gradient of a unit"
    noticed = (
        Notice(
            "client",
            "weights of another law than before, a large step, equal rows, and a model that is not the published one",
            (WeightLaw, ServerStep, AllowList),
        ),
    )
    references = ("Fowl23, section 3",)
    takes_records: ClassVar[bool] = True

    marks: PositiveInt = 6
    scale: PositiveFloat = 1e-4
    flow: PositiveFloat = 1e4

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        """The model for all clients; examples are ``(M, L)`` token numbers of the server's own texts."""
        layers = Gpt2Layers.of(model)
        width = model[layers.words].shape[1]
        require(2 * self.marks + 2 < width, "a width above 2 marks + 2", str(width), "Lower manipulation.marks.")
        texts = examples.dim() == 2 and not examples.is_floating_point() and len(examples) > 0
        require(texts, "texts of the server's own, as token numbers", str(tuple(examples.shape)), "Give known devices.")
        changes = self.tables(model, layers)
        for number, block in enumerate(layers.blocks):
            changes |= identity_norms(model, block)
            changes |= self.marking(model, block, changes[layers.places])
            if number:
                # Only the first attention gives anything.
                changes[f"{block}attn.c_proj.weight"] = torch.zeros_like(model[f"{block}attn.c_proj.weight"])
        marked = changed(model, **changes)
        measure = self.measure(width, generator)
        seen = self.inputs(marked, layers, examples) @ measure
        changes |= self.bins(model, layers, measure, seen)
        return SentModels.same(changed(model, **changes), clients)

    def tables(self, model: Model, layers: Gpt2Layers) -> dict[str, Tensor]:
        """Vectors of words and places: without numbers for marks, and with a key of the first place."""
        words = model[layers.words].clone()
        places = model[layers.places].clone()
        key_columns = slice(self.marks, 2 * self.marks)
        # The sign of a place's product with the key is that of its own key: the words' part of it is shorter, and as
        # the key's numbers sum to about 0, the mean that a normalisation subtracts has no part in it.
        signs = torch.ones(self.marks)
        signs[1::2] = -1
        signs = signs - signs.mean()
        longest = words[:, key_columns].norm(dim=1).max()
        key = _KEY * longest * signs / signs.norm().clamp(min=1e-6)
        words[:, : self.marks] = 0
        places[:, : self.marks] = 0
        places[:, key_columns] = -key
        places[0, key_columns] = key
        return {layers.words: words, layers.places: places}

    def marking(self, model: Model, block: str, places: Tensor) -> dict[str, Tensor]:
        """Attention by which each place gets the key columns of the first one, in its columns of marks."""
        width = places.shape[1]
        first = normalised(places[0].double())
        key_columns = slice(self.marks, 2 * self.marks)
        # Columns of query, key and value, D each.
        weight = torch.zeros(width, 3, width, dtype=torch.float64)
        bias = torch.zeros(3, width, dtype=torch.float64)
        bias[0, key_columns] = _SKEW * (places[0, key_columns] - places[-1, key_columns]).double()
        weight[:, 1] = torch.eye(width, dtype=torch.float64)
        weight[key_columns, 2, : self.marks] = torch.eye(self.marks, dtype=torch.float64)
        bias[2, : self.marks] = -first[key_columns]
        return {
            f"{block}attn.c_attn.weight": weight.flatten(1),
            f"{block}attn.c_attn.bias": bias.flatten(),
            f"{block}attn.c_proj.weight": torch.eye(width),
            f"{block}attn.c_proj.bias": torch.zeros(width),
        }

    def inputs(self, model: Model, layers: Gpt2Layers, texts: Tensor) -> Tensor:
        """``(M, D)`` inputs of the first feed-forward layer at all words of texts ``(N, L)``, padded with 0."""
        vectors = model[layers.words][texts].double() + model[layers.places][: texts.shape[1]].double()
        mark = marks_of(model, layers, self.marks, texts[:, 0])
        vectors[..., : self.marks] += mark[:, None]
        return normalised(vectors[texts > 0])

    def measure(self, width: int, generator: Generator) -> Tensor:
        """``(D,)`` m: of length 1 and sum 0, so that normalisations do not shift what it measures."""
        drawn = torch.randn(width - self.marks - 1, generator=generator, dtype=torch.float64)
        measured = functional.normalize(drawn - drawn.mean(), dim=0)
        return functional.pad(measured, (self.marks, 1))

    def bins(self, model: Model, layers: Gpt2Layers, measure: Tensor, seen: Tensor) -> dict[str, Tensor]:
        """Feed-forward layers with edges at quantiles of measured numbers ``(M,)``, taken for normal."""
        hidden = len(model[f"{layers.blocks[0]}mlp.c_fc.bias"])
        # Neighbouring blocks share an edge.
        count = len(layers.blocks) * (hidden - 1) + 1
        law = NormalDist(float(seen.mean()), max(float(seen.std()), 1e-9))
        edges = [_LOWEST]
        edges += [law.inv_cdf(number / count) for number in range(1, count)]
        changes = dict[str, Tensor]()
        for number, block in enumerate(layers.blocks):
            start = number * (hidden - 1)
            after = torch.zeros_like(model[f"{block}mlp.c_proj.weight"])
            after[:, -1] = self.flow / hidden
            changes |= {
                f"{block}mlp.c_fc.weight": self.scale * measure[:, None].expand(-1, hidden),
                f"{block}mlp.c_fc.bias": -self.scale * torch.tensor(edges[start : start + hidden]),
                f"{block}mlp.c_proj.weight": after,
                f"{block}mlp.c_proj.bias": torch.zeros_like(model[f"{block}mlp.c_proj.bias"]),
            }
        return changes


def normalised(vectors: Tensor) -> Tensor:
    """Vectors ``(..., D)`` after a normalisation without weights."""
    return functional.layer_norm(vectors, vectors.shape[-1:], eps=_NORM_EPS)


def marks_of(model: Model, layers: Gpt2Layers, marks: int, first_words: Tensor) -> Tensor:
    """``(N, v)`` mark of texts that begin with words ``(N,)``, in a model of `TokenImprint`."""
    key_columns = slice(marks, 2 * marks)
    first_place = normalised(model[layers.places][0].double())[key_columns]
    return layers.first_states(model, first_words)[..., key_columns] - first_place


def identity_norms(model: Model, block: str) -> dict[str, Tensor]:
    """Normalisations of a block with weights 1 and biases 0."""
    changes = {}
    for norm in ("ln_1", "ln_2"):
        changes[f"{block}{norm}.weight"] = torch.ones_like(model[f"{block}{norm}.weight"])
        changes[f"{block}{norm}.bias"] = torch.zeros_like(model[f"{block}{norm}.bias"])
    return changes
