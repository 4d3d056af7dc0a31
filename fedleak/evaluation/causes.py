"""Causes of attacks' failure, measured on the server's views of a recording, without ground truth."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedleak.client.auxiliary_images import AUXILIARY, auxiliary
from fedleak.client.class_updates import gradient_bases
from fedleak.client.network import ClassifierAlgorithm
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.client.recommendation import RecommenderAlgorithm
from fedleak.core.declared_noise import sent_numbers
from fedleak.core.errors import ViewError
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.cause import POSSIBLE, Cause
from fedleak.evaluation.causes_in_numbers import found_in_numbers
from fedleak.evaluation.mean_interval import MeanOverClients
from fedleak.evaluation.noise_floor import NoiseShare, declared_noise, proven_noise, spectral_noise

_HALF = 0.5
"""Share of clients, or of an update's energy, from which a cause explains a failure."""
_RANK_TOLERANCE = 1e-4
"""Relative to the largest singular value; the accuracy of differences of float32 updates."""
_ONE_STEP: dict[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0.0,
    "eps_root": 0.0,
    "weight_decay": 0.0,
    "epochs": 1,
    "batch_size": None,
    "updates": None,
}
"""Hyper-parameters of one step of gradient descent on all of a client's examples."""
_LABELS = ("auc", "error")
"""Metrics of attacks on labels of items."""
_SHARES = ("l1",)
"""Metrics of attacks on class shares."""
_MOST_ITEMS = 400
"""Largest number of labels of a client that is simulated once per label."""


def measured_causes(views: Sequence[RoundView], *, seed: int) -> list[Cause]:
    """Causes found in some views of a recording; the seed is that of simulated clients."""
    noise = _noise(views)
    # Noise hides the direction of the update, so the effect of several steps cannot be measured under it.
    steps = _steps(views, seed) if noise is None else None
    causes = [_silence(views), noise, _rank(views, seed), _class_rank(views, seed), steps]
    measured = [cause for cause in causes if cause is not None]
    for finding in found_in_numbers(views):
        measured.append(Cause(finding.cause, finding.sentence, finding.measured, finding.metrics))
    return measured


def _silence(views: Sequence[RoundView]) -> Cause | None:
    """At least half of the clients sent an update of zeros."""
    energies = []
    for view in views:
        of_tensors = [delta.double().reshape(len(delta), -1).square().sum(1) for delta in view.deltas.values()]
        energies.append(torch.stack(of_tensors).sum(0))
    energy = torch.cat(energies)
    silent = float((energy == 0).double().mean())
    if silent < _HALF:
        return None
    sentence = f"{silent:.0%} of {len(energy)} clients sent a zero update"
    return Cause("silence", sentence, {"share": silent, "n": len(energy)})


def _noise(views: Sequence[RoundView]) -> Cause | None:
    """Noise of at least half of the energy of an update: declared, proven by the spectrum, or at least possible."""
    # What clients declare comes before what the spectrum proves, and that before what it leaves possible.
    declared = _shares_of_views(views, declared_noise)
    proven = declared or _shares_of_views(views, proven_noise)
    shares = proven or _shares_of_views(views, spectral_noise)
    if not shares:
        return None
    share_of_noise = _mean_share(torch.cat([share.share for share in shares]))
    mean = share_of_noise.mean
    n = len(share_of_noise.values)
    if not mean >= _HALF:
        return None
    if not proven:
        part = f"up to {mean:.0%} of the energy of an update"
        sentence = f"{part} could be noise; none is declared, and none proven"
        return Cause(POSSIBLE, sentence, {"noise_share": mean, "n": n})
    scale = float(torch.cat([share.scale for share in shares]).mean())
    clip = shares[0].clip
    low, high = share_of_noise.ends()
    if declared:
        source = "as the clients declare it"
    else:
        source = "though none is declared: the spectra are flat, with one scale for all clients"
    sentence = (
        f"noise is {mean:.0%} of the energy of an update ({low:.0%} to {high:.0%}, n = {n}), {source}: standard"
        f" deviation {scale:.3g} per value"
    )
    measured = {"noise_share": mean, "low": low, "high": high, "n": n, "noise_scale": scale}
    if clip is not None:
        sentence += f", on updates clipped to norm {clip:.3g}"
        measured["clip"] = clip
    return Cause("noise", sentence, measured)


def _shares_of_views(
    views: Sequence[RoundView], noise_of: Callable[[RoundView], NoiseShare | None]
) -> list[NoiseShare]:
    """Noise of the views in which there is some."""
    shares = []
    for view in views:
        share = noise_of(view)
        if share is not None:
            shares.append(share)
    return shares


def _rank(views: Sequence[RoundView], seed: int) -> Cause | None:
    """More item labels than independent values in the update: RAIFLE's rank condition is violated."""
    # The first three clients of views whose items the server knows.
    served = []
    for view in views:
        if view.served is not None:
            served += [(view, victim) for victim in range(view.victims)]
    served = served[:3]
    unknowns: list[int] = []
    ranks: list[int] = []
    for view, victim in served:
        items = int(view.served_mask[victim].sum())
        effects = label_effects(view, victim, generator=generator_for(seed, "effects", victim))
        # Without a simulation, the numbers that a client sent are at least as many as the independent ones.
        if effects is None:
            rank = sum(int(sent_numbers(view, name)[victim]) for name in view.deltas)
        else:
            rank = _numerical_rank(effects)
        unknowns.append(items)
        ranks.append(min(rank, items))
    if not served or sum(ranks) >= sum(unknowns):
        return None
    mean_unknowns = sum(unknowns) / len(served)
    mean_rank = sum(ranks) / len(served)
    sentence = (
        f"the rank condition is violated: a client has {mean_unknowns:.0f} unknown labels, but only {mean_rank:.0f} "
        f"independent values of its update depend on them (mean of {len(served)} clients)"
    )
    return Cause("rank", sentence, {"unknowns": mean_unknowns, "rank": mean_rank, "n": len(served)}, _LABELS)


def _class_rank(views: Sequence[RoundView], seed: int) -> Cause | None:
    """Classes with linearly dependent updates, so that no composition is unique."""
    view = views[0]
    bases = _class_bases(view, view.algorithm, seed)
    if bases is None:
        return None
    classes = len(bases)
    rank = _numerical_rank(bases)
    if rank >= classes:
        return None
    sentence = f"the rank condition is violated: the updates of {classes} classes span only {rank} dimensions"
    return Cause("rank", sentence, {"unknowns": classes, "rank": rank, "n": 1}, _SHARES)


def _steps(views: Sequence[RoundView], seed: int) -> Cause | None:
    """Local training whose update differs from the gradient at the global model, with which attacks compare it."""
    view = views[0]
    local = getattr(view.algorithm, "local", None)
    if local is None or not isinstance(view.algorithm, ClassifierAlgorithm):
        return None
    # Updates of the classes after one step are their gradients at the global model.
    one_step = dataclasses.replace(view.algorithm, local=dataclasses.replace(local, **_ONE_STEP))
    bases = _class_bases(view, one_step, seed)
    if bases is None:
        return None
    if local.updates is None:
        batch = local.batch_size or max(int(view.example_counts.max()), 1)
        per_epoch = -(-view.example_counts // batch)
        steps = float((per_epoch * local.epochs).double().mean())
    else:
        steps = float(local.updates)
    of_round = [_last_layer(later) for later in views if later.round == view.round]
    share_explained = _mean_share(torch.cat([_explained(changes, bases) for changes in of_round]))
    if steps <= 1 or not share_explained.mean < _HALF:
        return None
    mean = share_explained.mean
    n = len(share_explained.values)
    low, high = share_explained.ends()
    sentence = (
        f"many local steps: after {steps:.0f} steps of {local.optimizer}, the classes' gradients at the global model "
        f"explain only {mean:.0%} of the energy of an update ({low:.0%} to {high:.0%}, n = {n})"
    )
    measured = {"steps": steps, "explained": mean, "low": low, "high": high, "n": n}
    return Cause("steps", sentence, measured, _SHARES)


def _mean_share(shares: Tensor) -> MeanOverClients:
    """Mean over clients of shares from 0 to 1, NaN where there is none."""
    return MeanOverClients.of_clients(shares.double().clamp(0, 1).numpy(), (0.0, 1.0))


def _class_bases(view: RoundView, learner: object, seed: int) -> Tensor | None:
    """``(K, D)`` update of the last layer per class of the auxiliary images, None if not simulated or recorded."""
    if not isinstance(learner, ClassifierAlgorithm) or view.missing(AUXILIARY):
        return None
    if not {f"{learner.output_layer}.weight", f"{learner.output_layer}.bias"} <= view.deltas.keys():
        return None
    with_learner = dataclasses.replace(view, algorithm=learner)
    try:
        classes = with_learner.model[f"{learner.output_layer}.bias"].shape[0]
        examples = auxiliary(with_learner, classes)
        # The union of classes is not used, but must not be empty.
        some = torch.eye(1, classes, dtype=torch.bool)
        generator = generator_for(seed, "class bases")
        return gradient_bases(with_learner, examples, some, generator=generator)[0].double()
    except (ViewError, KeyError):
        return None


def _last_layer(view: RoundView) -> Tensor:
    """``(V, D)`` update of the last layer, in the order of `fedleak.client.last_layer.flat_change`."""
    name = view.require(ClassifierAlgorithm).output_layer
    return torch.cat([view.deltas[f"{name}.weight"].flatten(1), view.deltas[f"{name}.bias"]], dim=1).double()


def _explained(changes: Tensor, bases: Tensor) -> Tensor:
    """``(V,)`` share of the energy of updates ``(V, D)`` in the span of ``(K, D)``; NaN for a zero update."""
    # Right singular vectors with a singular value above rounding span the bases.
    svd = torch.linalg.svd(bases, full_matrices=False)
    span = svd.Vh[_RANK_TOLERANCE * svd.S[0] < svd.S]
    energy = changes.square().sum(1)
    share: Tensor = (changes @ span.T).square().sum(1) / energy.masked_fill(energy == 0, torch.nan)
    return share


def _numerical_rank(matrix: Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=_RANK_TOLERANCE))


def label_effects(view: RoundView, victim: int, *, generator: torch.Generator) -> Tensor | None:
    """``(R, D)`` change of the update of the victim at a position when one of its labels is flipped.

    None if it cannot be simulated. The unknown private vector is drawn.
    """
    items = int(view.served_mask[victim].sum())
    learner = view.algorithm
    if not 0 < items <= _MOST_ITEMS or learner is None:
        return None
    if isinstance(learner, RankingAlgorithm):
        return _effects_in_lists(view, victim, learner)
    if not isinstance(learner, RecommenderAlgorithm) or view.served is None:
        return None
    # One client without positive labels, then one for each label with that one alone.
    clients = items + 1
    served = view.served[victim, :items].expand(clients, items)
    labels = torch.cat([torch.zeros(1, items), torch.eye(items)])
    user = torch.randn(1, learner.user_dim, generator=generator)
    simulated = learner.simulate(view.model, served, labels, user.expand(clients, -1))
    return _differences(simulated, list(view.deltas))


def _effects_in_lists(view: RoundView, victim: int, learner: RankingAlgorithm) -> Tensor | None:
    """The same for lists: clicks with a probability of a half, then with one item clicked for certain."""
    if view.lists is None or view.features is None:
        return None
    lists = ranked_lists(view)
    assert lists.features is not None
    mask = lists.mask[victim]
    features = lists.features[victim]
    positions = lists.place[victim][view.served_mask[victim]]
    even = mask.float() / 2
    flipped = even.repeat(len(positions), 1, 1)
    flipped.flatten(1)[torch.arange(len(positions)), positions] = 1
    clicks = torch.cat([even[None], flipped])
    copies = features.expand(len(clicks), *features.shape)
    masks = mask.expand(len(clicks), *mask.shape)
    simulated = learner.simulate_lists(view.model, copies, masks, clicks)
    return _differences(simulated, list(view.deltas))


def _differences(deltas: dict[str, Tensor], names: list[str]) -> Tensor:
    flat = torch.cat([deltas[name].flatten(1) for name in names if name in deltas], dim=1).double()
    return flat[1:] - flat[0]
