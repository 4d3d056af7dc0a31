"""Published attacks on a linear first layer: ratios, of neurons and of differences, and peeling of records."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.linear_inversion import record_errors
from fedleak.attacks.reconstruction.linear_layer import (
    LayerUpdate,
    LinearEstimate,
    are_pixels,
    layer_update,
    linear_estimate,
    neighbour_differences,
)
from fedleak.attacks.reconstruction.pixel_grid import on_grid
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_LIVE, _FIT, _SAME = 1e-10, 1e-8, 1e-6
"""Tolerances of the published code: of a live neuron, of the certificate, and of equal records (L2 norm)."""
_SINGLE = 1e-5, 1e-4, 1e-2
"""The same for float32 updates, the first two relative to the largest change of a bias."""
_ITERATIONS = 30
_AT_ONCE = 128
"""Candidates whose gradients are in memory together."""
_SKETCH = 8
"""Coordinates along which pairs of candidates are compared before all of their numbers are."""


@dataclass(frozen=True, kw_only=True)
class LinearRatio(ReconstructionAttack):
    """Change of each neuron's weight divided by that of its bias: the record, if one record alone excites the neuron.

    All ratios are returned, of images those in [0, 1]; the attack cannot say which of them are records.

    Threat model: passive server with the update of the first layer.

    References:
        Phong, Aono, Hayashi, Wang and Moriai, "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption",
        IEEE TIFS 2018, section III.
    """

    name = "linear-ratio"
    references = ("Phong et al. 2018",)
    cost = "milliseconds per victim"
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the global model",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view)
        live = layer.live(1e3 * layer.precision)
        return _ratios_in_range(view, layer, [rows[own] for rows, own in zip(layer.rows, live, strict=True)])


@dataclass(frozen=True, kw_only=True)
class LinearDifferences(ReconstructionAttack):
    """Ratios of the difference of two neighbouring neurons: the record, if one alone lies between their thresholds.

    The decoder of an imprint (`fedleak.server.imprint.Imprint`), where all neurons measure the same statistic. All
    ratios of neurons and of differences are returned, of images those in [0, 1]; the attack cannot say which are
    records.

    Threat model: server that sent a first layer with proportional neighbouring rows, with the update of that layer.

    References:
        Fowl, Geiping, Czaja, Goldblum and Goldstein, "Robbing the Fed: Directly Obtaining Private Data in Federated
        Learning with Modified Models", ICLR 2022, arXiv:2110.13057; code lhfowl/robbing_the_fed,
        attacks/analytic_attack.py.
    """

    name = "linear-differences"
    references = ("Robbing the Fed",)
    cost = "milliseconds per victim"
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the model that it sent, an imprint",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer, weights = layer_update(view), view.sent_models()
        found = []
        for rows, live, sent in zip(
            layer.rows, layer.live(1e3 * layer.precision), weights[f"{layer.name}.weight"], strict=True
        ):
            differences = neighbour_differences(rows, sent, layer.precision)
            if not len(differences):
                raise ViewError(
                    "expected a first layer with proportional rows, as an imprint has; found no two neighbouring ones"
                )
            found.append(torch.cat([rows[live], differences]))
        return _ratios_in_range(view, layer, found)


def _ratios_in_range(view: RoundView, layer: LayerUpdate, rows: list[Tensor]) -> LinearEstimate:
    """Ratios of the weights by the bias in rows ``(M_v, D + 1)`` of each client, of images those in [0, 1]."""
    ratios = [own[:, :-1] / own[:, -1:] for own in rows]
    near, pixels = 1 / 255, are_pixels(view)
    images = [own[((own > -near) & (own < 1 + near)).all(1)].clamp(0, 1) for own in ratios]
    if pixels or (pixels is None and any(bool(on_grid(own).any()) for own in images)):
        ratios = images
    return linear_estimate(layer, [torch.unique(own.float(), dim=0) for own in ratios], None)


@dataclass(frozen=True, kw_only=True)
class LinearPeeling(ReconstructionAttack):
    """Ratios whose record explains the change of the bias, subtracted until no further one is found.

    A ratio is a record of class y if the change of the bias that this record makes in one step, which the algorithm
    gives, is the observed one at the neuron of the ratio and, for one class, at all neurons that it fits for some
    class; its gradient is then subtracted, and neurons that are left with one record give the next. Equal ratios are
    tried once.

    The tolerances are those of the published code, for updates in float64. A neuron whose remaining change is below
    them fits any ratio that does not excite it, and rounding makes two records of one, so that combinations and
    repeated records are certified now and then, with the published code too. With float32 updates the tolerances are
    relative to the update; a record then fits some neuron as one of a wrong class by chance, so only the neuron of the
    ratio is tested, and nothing is certified.

    Threat model: passive server that knows the clients' algorithm, of one step.

    References:
        "Gradient Inversion via LT Codes", 2026, Algorithm 1; code SaeedShariati/Gradient-Inversion-via-LT-Codes.
    """

    name = "linear-peeling"
    references = ("LT codes, Algorithm 1",)
    cost = "seconds per victim"
    audited_victims = 20
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the global model and the clients' algorithm, of one step",
        needs=("deltas", "model", ClassifierAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer, learner = layer_update(view), view.require(ClassifierAlgorithm)
        if bool((learner.steps(view.example_counts) != 1).any()):
            raise ViewError("expected clients of one local step, whose gradient the attack subtracts; found several")
        sums = learner.step_sums(view.example_counts)
        if sums is None:
            raise ViewError("expected plain SGD; found another optimizer or clipped examples")
        found = [self._peel(view, layer, victim, float(sums[victim])) for victim in with_progress(range(view.victims))]
        classes = [torch.tensor(labels) for _, labels in found]
        return linear_estimate(
            layer, [own for own, _ in found], classes, certain=layer.precision <= torch.finfo(torch.float64).eps
        )

    def _peel(self, view: RoundView, layer: LayerUpdate, victim: int, rate: float) -> tuple[Tensor, list[int]]:
        count = max(int(view.example_counts[victim]), 1)
        model = {name: value[victim] for name, value in view.sent_models().items()}
        errors = record_errors(view, layer, model, victim)
        assert errors is not None
        weight, bias = -layer.weight[victim].double() / rate, -layer.bias[victim] / rate
        live, fit, same = _LIVE, _FIT, _SAME
        double = layer.precision <= torch.finfo(torch.float64).eps
        if not double:
            live, fit, same = (_SINGLE[0] * float(bias.abs().max()), _SINGLE[1] * float(bias.abs().max()), _SINGLE[2])
        records, labels = weight[:0], list[int]()
        for _ in range(_ITERATIONS):
            rows = (bias.abs() > live).nonzero().flatten()
            ratios = weight[rows] / bias[rows, None]
            new, changed = list[int](), list[Tensor]()
            for own in torch.split(distinct_ratios(ratios, records, same), _AT_ONCE):
                changes = errors(ratios[own]) / count
                at_source = changes[torch.arange(len(own)), :, rows[own]] - bias[rows[own], None]
                for place in (at_source.abs().amin(1) < fit).nonzero().flatten().tolist():
                    label, misfit = _fitted_class(changes[place], bias, rows, source=int(rows[own[place]]), fit=fit)
                    if misfit < fit or not double:
                        new.append(int(own[place]))
                        labels.append(label)
                        changed.append(changes[place, label])
            if not new:
                break
            subtracted = torch.stack(changed)
            weight, bias = weight - subtracted.T @ ratios[new], bias - subtracted.sum(0)
            records = torch.cat([records, ratios[new]])
        return records, labels


def _fitted_class(changes: Tensor, bias: Tensor, rows: Tensor, *, source: int, fit: float) -> tuple[int, float]:
    """Class that most neurons agree on, and the norm of its misfit at all neurons that a candidate fits for some class.

    A record is one of the same class at all neurons, so that its norm is about zero. A combination of records may fit
    one neuron as a record of one class and another neuron as one of another class, and then has a large norm.

    Args:
        changes: ``(K, N)`` changes of the bias that the candidate makes as a record of each class.
        bias: ``(N,)`` observed changes without those of the records found.
        rows: numbers of the neurons that still change; those that the candidate does not excite are left out.
        source: number of the neuron whose ratio the candidate is, where it fits.
        fit: tolerance.
    """
    excited = rows[(changes[:, rows] != 0).any(0) | (rows == source)]
    misfit = (changes[:, excited] - bias[excited]).abs()
    misfit = misfit[:, misfit.amin(0) < fit]
    least, best = misfit.min(0)
    votes = torch.bincount(best, minlength=len(changes))
    sums = torch.zeros(len(changes), dtype=misfit.dtype).index_add(0, best, least)
    label = int(sums.masked_fill(votes < votes.max(), torch.inf).argmin())
    return label, float(misfit[label].norm())


def distinct_ratios(ratios: Tensor, records: Tensor, same: float) -> Tensor:
    """Numbers of the ratios ``(M, D)`` that are farther than `same` from records ``(F, D)`` and earlier such ratios."""
    points, known = torch.cat([records, ratios]), len(records)
    draws = torch.randn(points.shape[1], _SKETCH, generator=torch.Generator().manual_seed(0), dtype=points.dtype)
    sketch = points @ torch.linalg.qr(draws).Q  # a projection, which lengthens no distance
    near = torch.cdist(sketch, sketch, compute_mode="donot_use_mm_for_euclid_dist") < same
    distinct = torch.ones(len(points), dtype=torch.bool)
    for late, early in near.tril(-1).nonzero().tolist():
        if late >= known and distinct[early] and float((points[late] - points[early]).norm()) < same:
            distinct[late] = False
    return distinct[known:].nonzero().flatten()
