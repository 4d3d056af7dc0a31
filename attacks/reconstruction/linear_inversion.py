"""Records solved for from the update of a linear first layer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attacks.reconstruction.estimates import ReconstructionAttack
from attacks.reconstruction.linear_layer import (
    LayerUpdate,
    LinearEstimate,
    check_scale,
    layer_errors,
    layer_update,
    linear_estimate,
)
from attacks.reconstruction.record_span import RecordErrors, RecordSpan, as_record, search_faces
from client.network import ClassifierAlgorithm
from protocol.ranges import NonNegativeInt
from protocol.threat_model import ThreatModel
from protocol.view import RoundView


@dataclass(frozen=True, kw_only=True)
class LinearInversion(ReconstructionAttack):
    """Exact records from a linear first layer: ratios, subtraction of what is found, and a search in the span.

    1. The change of a neuron's weight by that of its bias is a record, if only this record excites the neuron (Phong et
       al.). A vector with all numbers on the grid of pixels is one, and is certain if the update also has its changes
       of the bias (`record_span`).
    2. Certain records are subtracted, which isolates others.
    3. What remains is searched by linear programs for images in the span of the update (`search_faces`).

    Exact for one step and for several of plain SGD, with momentum, weight decay (which is subtracted), clipping, and
    for a sum of clients, as all of these keep ``weight = C^T X`` and ``bias = C^T 1`` with one matrix C. Adam, Adadelta
    and batch norm do not, and are refused with the cause. Under noise, a client with one record gets its estimate of
    least squares, ``sum_j h_j G_j / sum_j h_j^2``, with a mean squared error of ``s^2 / sum_j h_j^2`` for noise of
    standard deviation s; of several records nothing is certain, and nothing is returned. Records that are no 8-bit
    pixels are refused, see `linear_layer.check_scale`.

    Threat model: passive server with the model and the update of its first layer. If it knows the clients' algorithm,
    and they make one step, it also infers the records' classes.

    Args:
        programs: largest number of linear programs for a client; 0 stops after the subtractions.
        failures: linear programs without a new record after which the search stops.

    References:
        Phong, Aono, Hayashi, Wang and Moriai, "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption",
        IEEE TIFS 2018, section III. "Gradient Inversion via LT Codes", 2026, Algorithm 1, for the subtraction.
        This project, for the certificate, the subtraction without the clients' algorithm, and the search.
    """

    name = "linear-inversion"
    exact = True
    cost = "seconds per victim"
    audited_victims = 20
    estimates = LinearEstimate
    threat_model = ThreatModel(
        sees="the update of the first layer, which is linear with a bias",
        knows="the global model; for classes of the records, the clients' algorithm",
        needs=("deltas", "model"),
    )
    programs: NonNegativeInt = 1000
    failures: NonNegativeInt = 30

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view)
        if layer.noise:
            return _of_single_records(layer, view.example_counts)
        found = [self._solve(view, layer, victim, generator) for victim in range(view.victims)]
        check_scale(view, found=any(span.levels for span in found))
        classes, certain = ([torch.tensor(s.classes) for s in found], [torch.tensor(s.certain) for s in found])
        return linear_estimate(layer, [span_records(span) for span in found], classes, certain=certain)

    def _solve(self, view: RoundView, layer: LayerUpdate, victim: int, generator: torch.Generator) -> RecordSpan:
        model = {name: value[victim] for name, value in view.sent_models().items()}
        own = torch.cat([model[f"{layer.name}.weight"], model[f"{layer.name}.bias"][:, None]], dim=1).double()
        span = RecordSpan(
            layer.rows[victim],
            int(view.example_counts[victim]),
            precision=layer.precision,
            model=own,
            errors=record_errors(view, layer, model, victim),
        )
        span.peel()
        if span.exact and self.programs and self.failures:
            search_faces(span, failures=self.failures, programs=self.programs, generator=generator)
        return span


def span_records(span: RecordSpan) -> Tensor:
    """``(M, D)`` records found."""
    width = span.model.shape[1] - 1
    return as_record(torch.stack(span.levels), 1.0) if span.levels else torch.zeros(0, width, dtype=torch.float64)


def record_errors(view: RoundView, layer: LayerUpdate, model: dict[str, Tensor], victim: int) -> RecordErrors | None:
    """What each record of each class changes at the layer in one step; None unless the clients make one known step."""
    algorithm, counts = view.algorithm, view.example_counts[victim : victim + 1]
    if not isinstance(algorithm, ClassifierAlgorithm) or int(algorithm.steps(counts)) != 1:
        return None
    double = {name: value.double() for name, value in model.items()}

    def errors(records: Tensor) -> Tensor:
        return layer_errors(algorithm, double, records.reshape(len(records), *layer.shape), layer.name)

    return errors


def _of_single_records(layer: LayerUpdate, example_counts: Tensor) -> LinearEstimate:
    """Least squares of the clients with one record, and nothing of the others."""
    energy = layer.bias.square().sum(1)
    points = torch.einsum("vn,vnd->vd", layer.bias, layer.weight) / energy[:, None].clamp(min=1e-300)
    records = [point[None] if count == 1 else point[:0] for point, count in zip(points, example_counts, strict=True)]
    records = [record.reshape(-1, layer.weight.shape[2]) for record in records]
    predicted = 10 * (energy / layer.noise**2).log10()
    return linear_estimate(layer, records, None, predicted=predicted.masked_fill(example_counts != 1, torch.nan))
