"""Simulated messages of clients that clip and noise their updates, honestly or with one planted fault.

The updates look like real ones: dense gradients of low rank, or a table of which the client trained a few rows, with
norms below and above the clip.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import RoundView

SHAPES = {"table": (180, 40), "hidden.weight": (40, 60), "hidden.bias": (40,), "output.weight": (9, 40)}
"""10,000 numbers."""
LARGE = {"table": (1800, 40), "hidden.weight": (400, 60), "hidden.bias": (400,), "output.weight": (90, 40)}
"""100,000 numbers."""
Fault = Literal[
    "",
    "scale off by 5 %",
    "a layer without noise",
    "per-layer for joint clip",
    "weights clipped for updates",
    "one seed for all",
    "noise reused in two rounds",
    "Laplace for Gauss",
    "noise before the clip",
    "float16 rounding",
    "sensitivity not tied to the clip",
]


@dataclasses.dataclass(frozen=True)
class System:
    """A round of a federated system with declared local DP.

    Attributes:
        multiplier: standard deviation of the noise over the clip.
        clients: number of clients.
        clip: norm to which updates are clipped.
        update: norm of an update in clips, of each client between a half and twice as much.
        dense: whether all rows of the table are trained.
        epsilon: declared epsilon of a send.
    """

    multiplier: float
    clients: int = 10
    clip: float = 0.5
    update: float = 1.0
    dense: bool = False
    epsilon: float | None = None


def round_of(system: System, fault: str, generator: torch.Generator, earlier: RoundView | None = None) -> RoundView:
    """What the server sees of a round.

    Args:
        system: the clients.
        fault: the planted fault, empty for none.
        generator: source of all draws.
        earlier: the round before, of which ``noise reused in two rounds`` takes the noise.
    """
    model = {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    updates = _updates(system, generator)
    scale = system.multiplier * system.clip
    noise = {name: scale * _noise(system, shape, fault, generator) for name, shape in SHAPES.items()}
    if earlier is not None and fault == "noise reused in two rounds":
        noise = {name: earlier.auxiliary[f"noise/{name}"] for name in noise}
    if fault == "scale off by 5 %":
        noise = {name: 0.95 * value for name, value in noise.items()}
    if fault == "a layer without noise":
        noise["output.weight"] = torch.zeros_like(noise["output.weight"])
    if fault == "weights clipped for updates":
        trained = {name: model[name] + value for name, value in updates.items()}
        clipped = _clipped(trained, system.clip)
        sent = {name: clipped[name] - model[name] + noise[name] for name in clipped}
    elif fault == "noise before the clip":
        sent = _clipped({name: updates[name] + noise[name] for name in noise}, system.clip)
    else:
        joint = fault != "per-layer for joint clip"
        clipped = _clipped(updates, system.clip) if joint else _clipped_each(updates, system.clip)
        sent = {name: clipped[name] + noise[name] for name in clipped}
    if fault == "float16 rounding":
        sent = {name: value.half().float() for name, value in sent.items()}
    # Calibrated for a sensitivity of a tenth of the clip instead of twice the clip.
    epsilon = system.epsilon if fault != "sensitivity not tied to the clip" else _epsilon(system.multiplier * 10)
    release = Release(
        clip=system.clip,
        noise_scale=scale,
        parameters=tuple(SHAPES),
        epsilon=epsilon,
        delta=None if epsilon is None else 1e-5,
    )
    return RoundView(
        round=0 if earlier is None else earlier.round + 1,
        pseudonyms=torch.arange(system.clients) + 100,
        example_counts=torch.full((system.clients,), 10),
        deltas=sent,
        model=model,
        releases=(release,),
        auxiliary={f"noise/{name}": value for name, value in noise.items()},
    )


def sum_of(system: System, silent: int, generator: torch.Generator) -> RoundView:
    """A round with one secure sum of 100,000 numbers over all clients, of which `silent` add no noise."""
    scale = system.multiplier * system.clip
    clipped = _clipped(_updates(system, generator, LARGE), system.clip)
    total = {}
    for name, value in clipped.items():
        noise = torch.randn(value.shape, generator=generator)
        noise[:silent] = 0
        total[name] = (value + scale * noise).sum(0, keepdim=True)
    own = Release(clip=system.clip, noise_scale=scale, parameters=tuple(LARGE))
    others = (system.clients - 1) ** 0.5 * scale
    summed = Release(noise_scale=others, parameters=tuple(LARGE), participants=system.clients)
    return RoundView(
        round=0,
        pseudonyms=torch.arange(1) + 100,
        example_counts=torch.full((1,), 10),
        deltas=total,
        model={name: 0.2 * torch.randn(shape, generator=generator) for name, shape in LARGE.items()},
        releases=(own, summed),
    )


def recording_of(rounds: list[RoundView]) -> History:
    """The messages of some rounds as attacks on a history get them."""
    bare = {view.round: dataclasses.replace(view, auxiliary={}) for view in rounds}
    whole = {name: torch.cat([getattr(view, name) for view in rounds]) for name in ("pseudonyms", "example_counts")}
    return History(
        **bare[rounds[0].round].common() | whole | {"deltas": {}},
        sent_in=torch.cat([torch.full_like(view.pseudonyms, view.round) for view in rounds]),
        by_round=bare,
    )


def _epsilon(multiplier: float) -> float:
    from fedleak.core.gaussian_budget import gaussian_epsilon

    return gaussian_epsilon(multiplier**-2, 1e-5)


def _noise(system: System, shape: tuple[int, ...], fault: str, generator: torch.Generator) -> Tensor:
    count = (1 if fault == "one seed for all" else system.clients, *shape)
    if fault == "Laplace for Gauss":
        uniform = torch.rand(count, generator=generator, dtype=torch.float64) - 0.5
        return (-uniform.sign() * torch.log1p(-2 * uniform.abs()) / math.sqrt(2)).float()
    drawn = torch.randn(count, generator=generator)
    return drawn.expand(system.clients, *shape).clone()


def _updates(
    system: System, generator: torch.Generator, shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> dict[str, Tensor]:
    """Updates of low rank, partly common to all clients, with the given norms."""
    updates = {}
    for name, shape in shapes.items():
        draw: Callable[..., Tensor] = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
        if len(shape) == 1:
            value = draw(system.clients, *shape) + draw(1, *shape)
        else:
            value = draw(system.clients, shape[0], 3) @ draw(system.clients, 3, shape[1])
            value = value + draw(1, shape[0], 3) @ draw(1, 3, shape[1])
        if name == "table" and not system.dense:
            trained = torch.rand(system.clients, shape[0], generator=generator) < 0.08
            value = value * trained[..., None]
        updates[name] = value
    norms = torch.stack([value.flatten(1).square().sum(1) for value in updates.values()]).sum(0).sqrt()
    wanted = system.update * system.clip * 4 ** (torch.rand(system.clients, generator=generator) - 0.5)
    return {name: value * _each(wanted / norms, value) for name, value in updates.items()}


def _each(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.dim() - 1))


def _clipped(updates: dict[str, Tensor], clip: float) -> dict[str, Tensor]:
    norms = torch.stack([value.flatten(1).square().sum(1) for value in updates.values()]).sum(0).sqrt()
    return {name: value * _each((clip / norms).clamp(max=1), value) for name, value in updates.items()}


def _clipped_each(updates: dict[str, Tensor], clip: float) -> dict[str, Tensor]:
    return {name: _clipped({name: value}, clip)[name] for name, value in updates.items()}
