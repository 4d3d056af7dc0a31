"""Published attacks on a linear first layer: ratios, and peeling of records by the clients' algorithm."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.reconstruction.estimates import ReconstructionAttack
from attacks.reconstruction.linear_inversion import record_errors
from attacks.reconstruction.linear_layer import LayerUpdate, LinearEstimate, check_scale, layer_update, linear_estimate
from attacks.reconstruction.record_span import on_grid
from client.network import ClassifierAlgorithm
from protocol.errors import ViewError
from protocol.threat_model import ThreatModel
from protocol.view import RoundView

_LIVE, _FIT, _SAME = 1e-10, 1e-8, 1e-6
"""Tolerances of the published code: of a live neuron, of the certificate, and of equal records (L2 norm)."""
_SINGLE = 1e-5, 1e-4, 1e-2
"""The same for float32 updates, the first two relative to the largest change of a bias."""
_ITERATIONS = 30
_AT_ONCE = 128
"""Candidates whose gradients are in memory together."""


@dataclass(frozen=True, kw_only=True)
class LinearRatio(ReconstructionAttack):
    """Change of each neuron's weight divided by that of its bias: the record, if one record alone excites the neuron.

    All ratios that are images are returned; the attack cannot say which of them are records.

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
        ratios = [
            weight[own] / bias[own, None] for weight, bias, own in zip(layer.weight, layer.bias, live, strict=True)
        ]
        near = 1 / 255
        images = [own[((own > -near) & (own < 1 + near)).all(1)].clamp(0, 1) for own in ratios]
        check_scale(view, found=any(bool(on_grid(own).any()) for own in images))
        return linear_estimate(layer, [torch.unique(own.float(), dim=0) for own in images], None)


@dataclass(frozen=True, kw_only=True)
class LinearPeeling(ReconstructionAttack):
    """Ratios whose record explains the change of the bias, subtracted until no further one is found.

    A ratio is a record of class y if the change of the bias that this record makes in one step, which the algorithm
    gives, is the observed one at some neuron that it excites; its gradient is then subtracted, and neurons that are
    left with one record give the next. With float64 updates the tolerances are those of the published code; with
    float32 ones they are relative to the update, a combination of records can pass, and nothing is certified.

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
        found = [self._peel(view, layer, victim, float(sums[victim])) for victim in range(view.victims)]
        records = [torch.stack(own) if own else layer.weight[0, :0] for own, _ in found]
        classes = [torch.tensor(labels) for _, labels in found]
        return linear_estimate(layer, records, classes, certain=layer.precision <= torch.finfo(torch.float64).eps)

    def _peel(self, view: RoundView, layer: LayerUpdate, victim: int, rate: float) -> tuple[list[Tensor], list[int]]:
        count = max(int(view.example_counts[victim]), 1)
        model = {name: value[victim] for name, value in view.sent_models().items()}
        errors = record_errors(view, layer, model, victim)
        assert errors is not None
        weight, bias = -layer.weight[victim] / rate, -layer.bias[victim] / rate
        live, fit, same = _LIVE, _FIT, _SAME
        if layer.precision > torch.finfo(torch.float64).eps:
            live, fit, same = (_SINGLE[0] * float(bias.abs().max()), _SINGLE[1] * float(bias.abs().max()), _SINGLE[2])
        records: list[Tensor] = []
        labels: list[int] = []
        for _ in range(_ITERATIONS):
            rows = (bias.abs() > live).nonzero().flatten()
            found = []
            for own in torch.split(rows, _AT_ONCE):
                ratios = weight[own] / bias[own, None]
                changes = errors(ratios) / count
                at_source = changes[torch.arange(len(own)), :, own] - bias[own, None]
                for place in (at_source.abs().amin(1) < fit).nonzero().flatten().tolist():
                    if all(float((ratios[place] - known).norm()) >= same for known in records):
                        records.append(ratios[place])
                        found.append((ratios[place], *_fitted(changes[place], bias, rows, fit)))
            labels += [label for _, label, _ in found]
            for ratio, _, change in found:
                weight, bias = weight - change[:, None] * ratio, bias - change
            if not found:
                break
        return records, labels


def _fitted(changes: Tensor, bias: Tensor, rows: Tensor, fit: float) -> tuple[int, Tensor]:
    """Class that most live neurons agree on, and its changes of the bias, of ``changes (K, N)`` of a candidate."""
    excited = rows[changes[:, rows].abs().amax(0) > 0]
    misfit = (changes[:, excited] - bias[excited]).abs()
    least, best = misfit.min(0)
    votes = torch.bincount(best[least < fit], minlength=len(changes))
    label = int((votes - 1e-9 * misfit.where(misfit < fit, 0).sum(1) / fit).argmax())
    return label, changes[label]
