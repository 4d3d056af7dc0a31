"""Published attacks on a linear first layer: ratios, of neurons and of differences, and peeling of records."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.layer_step import record_errors
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

_LIVE = 1e-10
"""Change of the bias above which a neuron is live, as in the published code for float64 updates."""
_FIT = 1e-8
"""Largest misfit of a certified record, likewise."""
_SAME = 1e-6
"""Largest distance of records that are the same, likewise."""
_SINGLE_LIVE = 1e-5
"""`_LIVE` of float32 updates, relative to the largest change of a bias."""
_SINGLE_FIT = 1e-4
"""`_FIT` of float32 updates, likewise."""
_SINGLE_SAME = 1e-2
"""`_SAME` of float32 updates."""
_ITERATIONS = 30
"""Largest number of passes, in each of which the records found are subtracted."""
_LEVEL = 1 / 255
"""Distance of two neighbouring levels of a pixel."""
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
        [Phong18], section III.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import LinearRatio
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy()
        >>> estimate = LinearRatio()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["recovered"].mean()), 2)
        1.0
    """

    name = "linear-ratio"
    references = ("Phong18",)
    cost = "milliseconds per victim"
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the global model",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view)
        # Below 1,000 times the rounding, a quotient has less than three digits.
        live = layer.live(1e3 * layer.precision)
        live_rows = [rows[is_live] for rows, is_live in zip(layer.rows, live, strict=True)]
        return _ratios_in_range(view, layer, live_rows)


@dataclass(frozen=True, kw_only=True)
class LinearDifferences(ReconstructionAttack):
    """Ratios of the difference of two neighbouring neurons: the record, if one alone lies between their thresholds.

    The decoder of an imprint (`fedleak.server.imprint.Imprint`), where all neurons measure the same statistic. All
    ratios of neurons and of differences are returned, of images those in [0, 1]; the attack cannot say which are
    records.

    Threat model: server that sent a first layer with proportional neighbouring rows, with the update of that layer.

    References:
        [Fowl22]; code lhfowl/robbing_the_fed, attacks/analytic_attack.py.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import LinearDifferences
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy("imprint")
        >>> estimate = LinearDifferences()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["recovered"].mean()), 2)
        1.0
    """

    name = "linear-differences"
    references = ("Fowl22",)
    cost = "milliseconds per victim"
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the model that it sent, an imprint",
        needs=("deltas", "model"),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view)
        sent_weights = view.sent_models()[f"{layer.name}.weight"]
        live = layer.live(1e3 * layer.precision)
        candidates = []
        for rows, is_live, sent_weight in zip(layer.rows, live, sent_weights, strict=True):
            differences = neighbour_differences(rows, sent_weight, layer.precision)
            if not len(differences):
                raise ViewError(
                    "expected a first layer with proportional rows, as an imprint has; found no two neighbouring ones"
                )
            candidates.append(torch.cat([rows[is_live], differences]))
        return _ratios_in_range(view, layer, candidates)


def _ratios_in_range(view: RoundView, layer: LayerUpdate, rows: list[Tensor]) -> LinearEstimate:
    """Ratios of the weights by the bias in rows ``(M_v, D + 1)`` of each client, of images those in [0, 1]."""
    ratios = list[Tensor]()
    images = list[Tensor]()
    for client_rows in rows:
        ratio = client_rows[:, :-1] / client_rows[:, -1:]
        # A pixel may be outside [0, 1] by a level, due to rounding.
        is_image = ((ratio > -_LEVEL) & (ratio < 1 + _LEVEL)).all(1)
        ratios.append(ratio)
        images.append(ratio[is_image].clamp(0, 1))
    # Without images of its own, the server sees by ratios on the grid of pixels that records are images.
    pixels = are_pixels(view)
    if pixels is None:
        pixels = any(bool(on_grid(client_images).any()) for client_images in images)
    records = images if pixels else ratios
    return linear_estimate(layer, [torch.unique(client_records.float(), dim=0) for client_records in records], None)


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
        [LTCodes26], Algorithm 1; code SaeedShariati/Gradient-Inversion-via-LT-Codes.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import LinearPeeling
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy()
        >>> estimate = LinearPeeling()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["recovered"].mean()), 2)
        1.0
    """

    name = "linear-peeling"
    references = ("LTCodes26, Algorithm 1",)
    cost = "seconds per victim"
    audited_victims = 20
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the global model and the clients' algorithm, of one step",
        needs=("deltas", "model", ClassifierAlgorithm),
    )

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view)
        learner = view.require(ClassifierAlgorithm)
        if bool((learner.steps(view.example_counts) != 1).any()):
            raise ViewError("expected clients of one local step, whose gradient the attack subtracts; found several")
        rates = learner.step_sums(view.example_counts)
        if rates is None:
            raise ViewError("expected plain SGD; found another optimizer or clipped examples")
        records, classes = list[Tensor](), list[Tensor]()
        for victim in with_progress(range(view.victims)):
            client_records, labels = self._peel(view, layer, victim, float(rates[victim]))
            records.append(client_records)
            classes.append(torch.tensor(labels))
        return linear_estimate(layer, records, classes, certain=_is_double(layer))

    def _peel(self, view: RoundView, layer: LayerUpdate, victim: int, rate: float) -> tuple[Tensor, list[int]]:
        count = max(int(view.example_counts[victim]), 1)
        model = {name: value[victim] for name, value in view.sent_models().items()}
        errors = record_errors(view, layer, model, victim)
        assert errors is not None
        # The gradient of the mean loss; a record of N contributes 1 / N of its own.
        weight = -layer.weight[victim].double() / rate
        bias = -layer.bias[victim] / rate
        is_double = _is_double(layer)
        live, fit, same = _LIVE, _FIT, _SAME
        if not is_double:
            largest = float(bias.abs().max())
            live, fit, same = _SINGLE_LIVE * largest, _SINGLE_FIT * largest, _SINGLE_SAME
        records = weight[:0]
        labels = list[int]()
        for _ in range(_ITERATIONS):
            neurons = (bias.abs() > live).nonzero().flatten()
            ratios = weight[neurons] / bias[neurons, None]
            new, new_changes = list[int](), list[Tensor]()
            for candidates in torch.split(distinct_ratios(ratios, records, same), _AT_ONCE):
                changes = errors(ratios[candidates]) / count
                # A record alone at its neuron makes the whole change of the bias there, as one of some class.
                of_source = changes[torch.arange(len(candidates)), :, neurons[candidates]]
                misfit_at_source = (of_source - bias[neurons[candidates], None]).abs().amin(1)
                for row in (misfit_at_source < fit).nonzero().flatten().tolist():
                    source = int(neurons[candidates[row]])
                    label, misfit = _fitted_class(changes[row], bias, neurons, source=source, fit=fit)
                    if misfit < fit or not is_double:
                        new.append(int(candidates[row]))
                        labels.append(label)
                        new_changes.append(changes[row, label])
            if not new:
                break
            subtracted = torch.stack(new_changes)
            weight = weight - subtracted.T @ ratios[new]
            bias = bias - subtracted.sum(0)
            records = torch.cat([records, ratios[new]])
        return records, labels


def _is_double(layer: LayerUpdate) -> bool:
    return layer.precision <= torch.finfo(torch.float64).eps


def _fitted_class(changes: Tensor, bias: Tensor, neurons: Tensor, *, source: int, fit: float) -> tuple[int, float]:
    """Class that most neurons agree on, and the norm of its misfit at all neurons that a candidate fits for some class.

    A record is one of the same class at all neurons, so that its norm is about zero. A combination of records may fit
    one neuron as a record of one class and another neuron as one of another class, and then has a large norm.

    Args:
        changes: ``(K, N)`` changes of the bias that the candidate makes as a record of each class.
        bias: ``(N,)`` observed changes without those of the records found.
        neurons: numbers of the neurons that still change; those that the candidate does not excite are left out.
        source: number of the neuron whose ratio the candidate is, where it fits.
        fit: tolerance.
    """
    is_excited = (changes[:, neurons] != 0).any(0)
    excited = neurons[is_excited | (neurons == source)]
    misfit = (changes[:, excited] - bias[excited]).abs()
    fits_some_class = misfit.amin(0) < fit
    misfit = misfit[:, fits_some_class]
    # Each neuron votes for the class of its least misfit; of classes with as many votes, that of the least sum.
    least, best_class = misfit.min(0)
    votes = torch.bincount(best_class, minlength=len(changes))
    sums = torch.zeros(len(changes), dtype=misfit.dtype).index_add(0, best_class, least)
    has_fewer_votes = votes < votes.max()
    label = int(sums.masked_fill(has_fewer_votes, torch.inf).argmin())
    return label, float(misfit[label].norm())


def distinct_ratios(ratios: Tensor, records: Tensor, same: float) -> Tensor:
    """Numbers of the ratios ``(M, D)`` that are farther than `same` from records ``(F, D)`` and earlier such ratios."""
    points = torch.cat([records, ratios])
    first_ratio = len(records)
    # A projection lengthens no distance: pairs that are far apart in few of its coordinates are so in all numbers.
    draws = torch.randn(points.shape[1], _SKETCH, generator=torch.Generator().manual_seed(0), dtype=points.dtype)
    sketch = points @ torch.linalg.qr(draws).Q
    is_near = torch.cdist(sketch, sketch, compute_mode="donot_use_mm_for_euclid_dist") < same
    is_distinct = torch.ones(len(points), dtype=torch.bool)
    for late, early in is_near.tril(-1).nonzero().tolist():
        if late >= first_ratio and is_distinct[early] and float((points[late] - points[early]).norm()) < same:
            is_distinct[late] = False
    return is_distinct[first_ratio:].nonzero().flatten()
