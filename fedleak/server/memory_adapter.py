"""Memory adapter: an adapter whose units each take the state of one text, so that a sum keeps single texts."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from fedleak.core.errors import require
from fedleak.core.ranges import AtLeastTwo, PositiveFloat
from fedleak.defenses.model_checks.allow_list import AllowList
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw
from fedleak.server.deviation import Notice
from fedleak.server.model_manipulation import Model, ModelManipulation, SentModels, changed

_RIDGE = 1e-3
"""Ridge of the functionals of places, relative to the mean square of a number of the inputs."""
_WEIGHT = 10.0
"""Weight of the last place in them, where their errors are errors of the thresholds."""
_FEWEST_ROWS = 4
"""Rank below which nothing is left for the text: two rows have the places."""
_MOST_OTHERS = 3.0
"""Largest number of a text's other places that excite a unit, over that of its last place."""


@dataclass(frozen=True)
class FirstAdapter:
    """Names of the two matrices of a network's first adapter.

    Attributes:
        down: ``(R, D)``, A.
        up: ``(N, R)``, B; N outputs of the adapted layer.
    """

    down: str
    up: str

    @classmethod
    def of(cls, model: Model) -> Self:
        """The first adapter of a model.

        Raises:
            InputError: it has none with both matrices.
        """
        downs = [name for name in model if ".lora_A." in name]
        up = downs[0].replace(".lora_A.", ".lora_B.") if downs else ""
        way_out = "Set model.adapter.variant: lora, with the first layer of the feed-forward blocks as its target."
        require(up in model, "adapters with the matrices lora_A and lora_B", ", ".join([*model][:3]), way_out)
        return cls(downs[0], up)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryAdapter(ModelManipulation):
    """Rows of B that excite one of many texts each, and A that projects a text's state: B then changes by that state.

    For the first layer of a feed-forward block, adapted by ``B A``, with input z at the places of a text. A has two
    rows f and g that tell the last place T from the others (``f^T z_T`` is about 1 and 0 elsewhere, ``g^T z_T`` about 0
    and positive elsewhere), and projections P of all other directions, times `gain`. Row u of B is ``(-tau_u, -1,
    b_u)`` with a random b_u, so that unit u has the input ``gain (b_u^T P z - tau_u f^T z - g^T z)``: far below 0 at
    the other places, and at T above 0 for one of `records` texts. Its activation (ReLU, GELU, SiLU) is flat below 0,
    so that row u of the change of B is a multiple of ``A z_T`` of the one text that excites it, whatever the others in
    the batch or in the sum. As nothing before the layer is trained, z does not move: steps of SGD add multiples of the
    same vector, and Adam gives its signs. The decoder is `MemoryRows`.

    Read: the abstract of NeuroImprint, and a third party's summary of its structure
    (github.com/amurlaniakea/neuroimprint-detector, README): a projection, a layer of memory neurons of which each takes
    one sample and is updated at most once, an output layer; not the paper's text. That adapter has layers, biases and
    an activation of its own, and equal rows with increasing biases. This project's own: adapters are LoRA, which is
    linear and has no bias, so that the adapted layer's units are the memory neurons, the states of a place give the
    constant, and the rows are random, because a linear adapter cannot make the columns of the next layer equal. A unit
    is not closed after its update: its text excites it in each step, and no other does.

    Args:
        records: B, the number of texts in the update or in the sum.
        gain: factor of A; large ones make the activation sharp and the update large against the rounding of B.
        margin: distance of the other places from the threshold, in standard deviations of a unit's input.

    References:
        [Shi26].
    """

    name = "memory-adapter"
    does = "sends an adapter of which each unit is excited by about one text, so that its change is that text's state"
    noticed = (
        Notice(
            "client",
            "adapters of another law than before, a large step, and a first adapter that is not the published one",
            (WeightLaw, ServerStep, AllowList),
        ),
    )
    references = ("Shi26, abstract",)

    records: AtLeastTwo
    gain: PositiveFloat = 50.0
    margin: PositiveFloat = 3.5

    def manipulated(self, model: Model, examples: Tensor, clients: Tensor, *, generator: Generator) -> SentModels:
        """The adapter for all clients; examples are ``(M, L, D)`` inputs at the L places of each text."""
        layer = FirstAdapter.of(model)
        rank = len(model[layer.down])
        units = len(model[layer.up])
        require(rank >= _FEWEST_ROWS, f"a rank of at least {_FEWEST_ROWS}", str(rank), "Raise model.adapter.rank.")
        inputs = examples.double()
        enough = inputs.dim() == 3 and len(inputs) > 2 * self.records and inputs.shape[1] > 1
        expected = f"more than {2 * self.records} texts of the server's own, of two words or more"
        require(enough, expected, f"the shape {tuple(inputs.shape)}", "Lower manipulation.records, or give more data.")
        # The states P z of all places, and random rows b_u in a scale in which b_u^T P z_T varies by about 1.
        projection = self.projection(inputs, rank - 2, generator)
        states = inputs @ projection.T
        spread = states[:, -1].std(0).norm()
        rows = torch.randn(units, rank - 2, generator=generator, dtype=torch.float64) / spread
        unit_inputs = states @ rows.T
        # f and g; g is `margin` standard deviations of the units' inputs at each place but the last.
        f, g = place_functionals(inputs, self.margin * unit_inputs.std((0, 2))).T
        # tau_u: the quantile over texts with which one of `records` is above it at its last place.
        at_last = unit_inputs[:, -1] - inputs[:, -1:] @ g
        tau = torch.quantile(at_last / (inputs[:, -1:] @ f), 1 - 1 / self.records, dim=0)
        # Where places are hardly distinguished, units remember other places too.
        excited = unit_inputs - (inputs @ g)[..., None] - (inputs @ f)[..., None] * tau > 0
        excited_at_last = excited[:, -1].sum().clamp(min=1)
        wrong_per_right = excited[:, :-1].sum() / excited_at_last
        require(
            float(wrong_per_right) <= _MOST_OTHERS,
            "a network whose first feed-forward layer distinguishes places, as with learned positions",
            f"{float(wrong_per_right):.1f} other places that excite a unit, for each last one",
            "Take a network with learned positions, such as GPT-2, or raise manipulation.margin.",
        )
        # A has the rows f, g and P times the gain; row u of B is (-tau_u, -1, b_u).
        down = self.gain * torch.cat([f[None], g[None], projection])
        minus_one = -torch.ones(units, 1, dtype=torch.float64)
        up = torch.cat([-tau[:, None], minus_one, rows], dim=1)
        sent = changed(model, **{layer.down: down, layer.up: up})
        return SentModels.same(sent, clients)

    def projection(self, inputs: Tensor, rank: int, generator: Generator) -> Tensor:
        """``(R, D)`` orthonormal directions in which the places of ``inputs (M, L, D)`` have the same mean."""
        width = inputs.shape[-1]
        # Random directions without their part in the span of the places' means.
        means_basis = torch.linalg.qr(inputs.mean(0).T)[0]
        drawn = torch.randn(width, rank, generator=generator, dtype=torch.float64)
        drawn = drawn - means_basis @ (means_basis.T @ drawn)
        directions: Tensor = torch.linalg.qr(drawn)[0].T
        return directions


def place_functionals(inputs: Tensor, heights: Tensor) -> Tensor:
    """``(D, 2)`` least squares of 1 at the last place and 0 elsewhere; of 0 at it and heights ``(L,)`` elsewhere."""
    size, length, width = inputs.shape
    targets = torch.zeros(length, 2, dtype=torch.float64)
    targets[-1, 0] = 1
    targets[:-1, 1] = heights[:-1]
    weights = torch.ones(length, dtype=torch.float64)
    weights[-1] = _WEIGHT
    # Weighted ridge regression, (X' W X + ridge)^-1 X' W Y, over all places of all texts.
    weighted = (inputs * weights[:, None]).flatten(0, 1)
    flat = inputs.flatten(0, 1)
    ridge = _RIDGE * flat.square().sum() / width * torch.eye(width, dtype=torch.float64)
    targets_of_all = targets.expand(size, -1, -1).flatten(0, 1)
    functionals: Tensor = torch.linalg.solve(weighted.T @ flat + ridge, weighted.T @ targets_of_all)
    return functionals
