"""What in a recording keeps attacks from succeeding, measured on what the server saw; no truth is opened here."""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attacks.composition.base import AUXILIARY, auxiliary
from attacks.composition.decaf import gradient_bases
from evaluation.bootstrap import bootstrap
from evaluation.label_influence import label_effects, numbers_sent
from evaluation.noise_floor import NoiseShare, declared_noise, spectral_noise
from protocol.seeding import generator_for
from protocol.simulators import AnySimulator, ClassifierSimulator
from protocol.view import ServerView, ViewError

_HALF = 0.5
_RANK_TOLERANCE = 1e-4
"""Of the largest singular value: differences of float32 updates are no more exact."""
_ONE_STEP: dict[str, Any] = {
    **{"optimizer": "sgd", "momentum": 0.0, "eps_root": 0.0, "weight_decay": 0.0},
    **{"epochs": 1, "batch_size": None, "updates": None},
}
"""Of plain gradient descent on all of a client's examples."""
_LABELS = ("auc", "error")
_SHARES = ("l1",)


@dataclass(frozen=True)
class Symptom:
    """A likely cause of an attack's failure.

    Attributes:
        cause: ``noise``, ``rank``, ``steps`` or ``silence``.
        told: the sentence that a report prints.
        measured: the numbers in it.
        metrics: the metrics of the attacks that it can explain, None for all.
    """

    cause: str
    told: str
    measured: dict[str, float]
    metrics: tuple[str, ...] | None = None


def symptoms(views: Sequence[ServerView], *, seed: int) -> list[Symptom]:
    """Everything that is found in some views of a recording.

    Args:
        views: of some victims.
        seed: of the bootstrap and of simulated clients.
    """
    noise = _noise(views, seed)
    # Noise leads away from every gradient: beside it nothing can be said of the steps.
    steps = _steps(views, seed) if noise is None else None
    found = [_silence(views), noise, _rank(views, seed), _class_rank(views, seed), steps]
    return [symptom for symptom in found if symptom is not None]


def _silence(views: Sequence[ServerView]) -> Symptom | None:
    energy = torch.cat([_energy(view, list(view.deltas)) for view in views])
    silent = float((energy == 0).double().mean())
    if silent < _HALF:
        return None
    told = f"{silent:.0%} of {len(energy)} clients sent an update of zeros"
    return Symptom("silence", told, {"share": silent, "n": len(energy)})


def _noise(views: Sequence[ServerView], seed: int) -> Symptom | None:
    """Noise of at least the energy of the signal; as the clients declare it, else as the spectrum shows it."""
    declared = [share for view in views if (share := declared_noise(view)) is not None]
    shares = declared or [share for view in views if (share := spectral_noise(view)) is not None]
    if not shares:
        return None
    values = torch.cat([share.share for share in shares])
    summary = bootstrap(values, generator=generator_for(seed, "noise share"))
    if not summary.mean >= _HALF:
        return None
    whence = "as the clients declare it" if declared else "as the flat spectrum of the updates shows"
    told = (
        f"noise is {summary.mean:.0%} of the energy of an update ({summary.low:.0%} to {summary.high:.0%}, "
        f"n = {summary.n}), {whence}{_clipped(shares)}"
    )
    measured = {"noise_share": summary.mean, "low": summary.low, "high": summary.high, "n": summary.n}
    return Symptom("noise", told, measured | _scales(shares))


def _scales(shares: Sequence[NoiseShare]) -> dict[str, float]:
    scale = torch.cat([share.scale for share in shares]).mean()
    clip = shares[0].clip
    return {"noise_scale": float(scale)} | ({} if clip is None else {"clip": clip})


def _clipped(shares: Sequence[NoiseShare]) -> str:
    scale, clip = _scales(shares)["noise_scale"], shares[0].clip
    before = "" if clip is None else f", to updates clipped to a norm of {clip:.3g}"
    return f": standard deviation {scale:.3g} on every number{before}"


def _rank(views: Sequence[ServerView], seed: int) -> Symptom | None:
    """More labels of items than the update has independent numbers (RAIFLE's rank condition)."""
    served = [(view, victim) for view in views if view.served is not None for victim in range(view.victims)][:3]
    unknowns: list[int] = []
    ranks: list[int] = []
    for view, victim in served:
        items = int(view.served_mask[victim].sum())
        effects = label_effects(view, victim, generator=generator_for(seed, "effects", victim))
        rank = int(numbers_sent(view)[victim]) if effects is None else _numerical_rank(effects)
        unknowns.append(items)
        ranks.append(min(rank, items))
    if not served or sum(ranks) >= sum(unknowns):
        return None
    asked, equations = sum(unknowns) / len(served), sum(ranks) / len(served)
    told = (
        f"the rank condition is violated: {asked:.0f} labels are asked of an update in which only {equations:.0f} "
        f"numbers depend on them independently (mean of {len(served)} clients)"
    )
    return Symptom("rank", told, {"unknowns": asked, "rank": equations, "n": len(served)}, _LABELS)


def _class_rank(views: Sequence[ServerView], seed: int) -> Symptom | None:
    """Classes whose changes are not independent, so that no combination of them is unique."""
    view = views[0]
    bases = _class_bases(view, view.learner, seed)
    if bases is None:
        return None
    classes, rank = len(bases), _numerical_rank(bases)
    if rank >= classes:
        return None
    told = f"the rank condition is violated: the changes of {classes} classes span only {rank} dimensions"
    return Symptom("rank", told, {"unknowns": classes, "rank": rank, "n": 1}, _SHARES)


def _steps(views: Sequence[ServerView], seed: int) -> Symptom | None:
    """Local training that leads away from the gradient at the global model, to which attacks compare an update."""
    view = views[0]
    local = getattr(view.learner, "local", None)
    if local is None or not isinstance(view.learner, ClassifierSimulator):
        return None
    one_step = copy.copy(view.learner)
    one_step.local = dataclasses.replace(local, **_ONE_STEP)  # type: ignore[attr-defined]
    bases = _class_bases(view, one_step, seed)
    if bases is None:
        return None
    batch = local.batch_size or max(int(view.example_counts.max()), 1)
    per_epoch = -(-view.example_counts // batch)
    steps = float((per_epoch * local.epochs).double().mean()) if local.updates is None else float(local.updates)
    explained = torch.cat([_explained(_last_layer(each), bases) for each in views if each.round == view.round])
    summary = bootstrap(explained, generator=generator_for(seed, "explained"))
    if steps <= 1 or not summary.mean < _HALF:
        return None
    told = (
        f"many local steps: after {steps:.0f} of {local.optimizer}, the classes' gradients at the global model explain "
        f"only {summary.mean:.0%} of the energy of an update ({summary.low:.0%} to {summary.high:.0%}, n = {summary.n})"
    )
    measured = {"steps": steps, "explained": summary.mean, "low": summary.low, "high": summary.high, "n": summary.n}
    return Symptom("steps", told, measured, _SHARES)


def _class_bases(view: ServerView, learner: AnySimulator | None, seed: int) -> Tensor | None:
    """``(K, D)`` change of the last layer by each class of the auxiliary images, None where it cannot be simulated."""
    if not isinstance(learner, ClassifierSimulator) or view.missing(AUXILIARY):
        return None
    seen = dataclasses.replace(view, learner=learner)
    try:
        classes = seen.model[f"{learner.output_layer}.bias"].shape[0]
        known = auxiliary(seen, classes)
        some = torch.eye(1, classes, dtype=torch.bool)  # a union is not asked for, but must hold a class
        return gradient_bases(seen, known, some, generator=generator_for(seed, "class bases"))[0].double()
    except (ViewError, KeyError):
        return None


def _last_layer(view: ServerView) -> Tensor:
    """``(V, D)`` in the order of `attacks.composition.base.flat_change`."""
    name = view.require(ClassifierSimulator).output_layer
    return torch.cat([view.deltas[f"{name}.weight"].flatten(1), view.deltas[f"{name}.bias"]], dim=1).double()


def _explained(changes: Tensor, bases: Tensor) -> Tensor:
    """``(V,)`` share of the energy of changes ``(V, D)`` in the span of ``(K, D)``; NaN where nothing changed."""
    basis = torch.linalg.svd(bases, full_matrices=False)
    kept = basis.Vh[_RANK_TOLERANCE * basis.S[0] < basis.S]
    energy = changes.square().sum(1)
    share: Tensor = (changes @ kept.T).square().sum(1) / energy.masked_fill(energy == 0, torch.nan)
    return share


def _numerical_rank(matrix: Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=_RANK_TOLERANCE))


def _energy(view: ServerView, names: Sequence[str]) -> Tensor:
    """``(V,)`` squared norm of some parameters."""
    return torch.stack([view.deltas[name].double().flatten(1).square().sum(1) for name in names]).sum(0)
