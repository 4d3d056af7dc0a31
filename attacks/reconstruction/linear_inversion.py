"""Records solved for from the update of a linear first layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.face_search import search_faces
from fedleak.attacks.reconstruction.linear_layer import (
    LayerUpdate,
    LinearEstimate,
    are_pixels,
    has_classes,
    layer_errors,
    layer_update,
    linear_estimate,
)
from fedleak.attacks.reconstruction.peeled_rows import RowChanges
from fedleak.attacks.reconstruction.pixel_grid import as_levels
from fedleak.attacks.reconstruction.possible_rows import MOST_POSSIBLE, ROUNDING, search_possible
from fedleak.attacks.reconstruction.record_span import RecordErrors, RecordSpan, confirm
from fedleak.attacks.reconstruction.record_supports import ZEROS, FoundRecords, search_supports
from fedleak.attacks.reconstruction.table_search import TableUpdate, search_table
from fedleak.attacks.reconstruction.update_precision import number_errors
from fedleak.client.layer_inputs import layer_inputs
from fedleak.client.network import NetworkAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import NonNegativeInt, PositiveFloat
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView

_OFF_GRID = 10
"""Times as many failures after which the search for records that are no pixels stops."""


@dataclass(frozen=True, kw_only=True)
class LinearInversion(ReconstructionAttack):
    """Exact records from a linear first layer: ratios, subtraction of what is found, and a search in the span.

    1. The change of a neuron's weight by that of its bias is a record, if only this record excites the neuron (Phong et
       al.). A vector with all numbers on the grid of pixels may be one. It is certain if the update has once what such
       a record changes in the clients' step (`record_span` derives the condition); quotients of numbers that are
       quantised, or known to few digits, are near the grid by chance, which is counted (`update_precision`).
       Where the server sent an imprint, so are the differences of neighbouring neurons (Fowl et al.).
    2. Records whose change of the bias is known are subtracted, which isolates others.
    3. What remains is searched by linear programs for images in the span of the update (`search_faces`).
    4. Records on another scale, e.g. rows of a standardised table, are searched by the neurons that each excites, and
       are certain if the client's step, made again with them, is the update (`search_supports`), and has each of them
       once. This needs the clients' algorithm, of one step, and fewer records than numbers in each.
    5. If the server has the description of a table's columns (`fedleak.core.table_columns`) and all possible rows can
       be listed, the number of copies of each is solved for instead, for any number of records (`search_possible`). A
       row is certain only if all its numbers are on the grid and each group has exactly one 1. Behind an embedding of
       the categories, the layer gets the embedded rows, which the global model gives of all possible ones; this needs
       one step at that model.
    6. If there are too many to list, ratios on the grid are rows, and are subtracted (`search_table`); then step 4 is
       tried. Rows that are found stay where not all are.

    Rows of a table with known columns are certain if no others make the same update (`certified_rows`), and as often as
    the update shows, whatever number of examples is reported (`certain_copies`).

    Exact for one step and for several of plain SGD, with momentum, weight decay (which is subtracted), clipping, and
    for a sum of clients, as all of these keep ``weight = C^T X`` and ``bias = C^T 1`` with one matrix C. Adam, Adadelta
    and batch norm do not, and are refused with the cause. Under noise, a client with one record gets its estimate of
    least squares, ``sum_j h_j G_j / sum_j h_j^2``, with a mean squared error of ``s^2 / sum_j h_j^2`` for noise of
    standard deviation s; of several records nothing is certain, and nothing is returned.

    Threat model: passive server with the model and the update of its first layer. If it knows the clients' algorithm,
    and they make one step, it also infers the records' classes, and records that are no 8-bit pixels.

    Args:
        programs: largest number of linear programs for a client; 0 stops after the subtractions.
        failures: linear programs without a new record after which the search stops; ten times as many if records are
            no pixels.
        accuracy: largest error, to four standard errors, of the numbers of a certified record that is no 8-bit image.

    References:
        Phong, Aono, Hayashi, Wang and Moriai, "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption",
        IEEE TIFS 2018, section III. "Gradient Inversion via LT Codes", 2026, Algorithm 1, for the subtraction.
        Fowl et al., "Robbing the Fed", ICLR 2022, arXiv:2110.13057, for the differences.
        This project, for the certificate, the subtraction without the clients' algorithm, and the search.
    """

    name = "linear-inversion"
    exact = True
    certifies = True
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
    accuracy: PositiveFloat = 1e-3

    def run(self, view: RoundView, *, generator: torch.Generator) -> LinearEstimate:
        layer = layer_update(view, embedded=True)
        if layer.embedded:
            _check_embedded(view, layer)
        if layer.noise:
            return _of_single_records(layer, view.example_counts)
        pixels = are_pixels(view)
        columns = TableColumns.of(view.auxiliary[COLUMNS]) if COLUMNS in view.auxiliary else None
        inputs = math.prod(layer.shape)
        if columns is not None and len(columns.column) != inputs:
            raise ViewError(f"expected a network with the {len(columns.column)} inputs of the columns; got {inputs}")
        victims = with_progress(range(view.victims))
        solved = [self._solve(view, layer, victim, pixels, columns, generator) for victim in victims]
        solved = _confirmed(solved, view.auxiliary["images"] if pixels else None)
        if not pixels and columns is None and not any(len(client.records) for client in solved):
            self._check_capacity(view, layer)
        classes, certain = [client.classes for client in solved], [client.certain for client in solved]
        return linear_estimate(layer, [client.records for client in solved], classes, certain=certain)

    def _solve(
        self,
        view: RoundView,
        layer: LayerUpdate,
        victim: int,
        pixels: bool | None,
        columns: TableColumns | None,
        generator: torch.Generator,
    ) -> FoundRecords:
        model = {name: value[victim] for name, value in view.sent_models().items()}
        if columns is not None:
            return self._table_rows(view, layer, model, victim, columns, generator)
        sent = torch.cat([model[f"{layer.name}.weight"], model[f"{layer.name}.bias"][:, None]], dim=1).double()
        weight, bias = (view.deltas[f"{layer.name}.{part}"][victim].double() for part in ("weight", "bias"))
        rows, count = layer.rows_of(victim), int(view.example_counts[victim])
        span = RecordSpan(
            rows,
            count,
            bounds=number_errors(torch.cat([weight, bias[:, None]], dim=1), sent),
            precision=layer.precision,
            model=sent,
            errors=record_errors(view, layer, model, victim),
            rate=_declared_rate(view, victim) or 1.0,
            several_models=view.client_models is not None,
        )
        if pixels is not False:
            span.peel()
            if span.exact and self.programs and self.failures:
                search_faces(span, failures=self.failures, programs=self.programs, generator=generator)
        if pixels or span.candidates:
            return span_records(span)
        return self._off_grid(span, rows, count, generator)

    def _off_grid(self, span: RecordSpan, rows: Tensor, count: int, generator: torch.Generator) -> FoundRecords:
        """Records of one client on any scale."""
        return search_supports(
            span,
            rows,
            count,
            accuracy=self.accuracy,
            failures=self.failures * _OFF_GRID,
            programs=self.programs,
            generator=generator,
        )

    def _table_rows(
        self,
        view: RoundView,
        layer: LayerUpdate,
        model: dict[str, Tensor],
        victim: int,
        columns: TableColumns,
        generator: torch.Generator,
    ) -> FoundRecords:
        """Rows of one client whose table has known columns."""
        are_listed = columns.possible * layer.weight.shape[1] <= MOST_POSSIBLE
        weight, bias = model[f"{layer.name}.weight"], model[f"{layer.name}.bias"]
        update = TableUpdate(
            rows=layer.rows_of(victim),
            count=int(view.example_counts[victim]),
            columns=columns,
            errors=record_errors(view, layer, model, victim),
            rate=_declared_rate(view, victim),
            floor=_rounding_length(layer, victim, weight),
            precision=layer.precision,
        )

        def listed() -> FoundRecords | None:
            return _possible_rows(view, layer, model, victim, columns) if are_listed else None

        def search() -> FoundRecords:
            sent = torch.cat([weight, bias[:, None]], dim=1).double()
            span = RecordSpan(update.rows, update.count, precision=layer.precision, model=sent, errors=update.errors)
            return self._off_grid(span, update.rows, update.count, generator)

        if layer.embedded:  # ratios are embedded rows
            possible = listed()
            assert possible is not None, "`_check_embedded` refuses others"
            return possible
        return search_table(update, listed, search)

    @staticmethod
    def _check_capacity(view: RoundView, layer: LayerUpdate) -> None:
        """Refuses records off the grid of pixels that the search cannot find, rather than to say that there are none.

        Raises:
            ViewError: the clients' step is unknown, or they have more records than the layer's update has dimensions.
        """
        algorithm, fewest = view.algorithm, int(view.example_counts.min())
        known = has_classes(algorithm) and bool((algorithm.steps(view.example_counts) == 1).all())
        neurons, width = layer.weight.shape[1:]
        most = min(width, neurons // ZEROS)
        if not known or fewest > most:
            raise ViewError(
                "nothing found in the updates has values on a grid of 1/255 in [0, 1]; records on another scale, e.g."
                " standardised tables, may be in them all the same, but are found only for clients that classify with a"
                f" known algorithm in one step (--learner) and have at most {most} records here; found"
                f" {'such clients' if known else 'another or no algorithm'} with at least {fewest} records"
            )


def span_records(span: RecordSpan) -> FoundRecords:
    """Candidates of a span, and which of them are certain."""
    span.decide()
    width = span.model.shape[1] - 1
    points = [candidate.point[:-1] for candidate in span.candidates]
    return FoundRecords(
        torch.stack(points) if points else torch.zeros(0, width, dtype=torch.float64),
        torch.tensor([candidate.label for candidate in span.candidates]),
        torch.tensor([candidate.certain for candidate in span.candidates]),
        span.candidates,
    )


def _confirmed(found: Sequence[FoundRecords], images: Tensor | None) -> list[FoundRecords]:
    """Without the certainty that the images of all clients, or the server's own, do not confirm."""
    candidates = [candidate for records in found for candidate in records.candidates]
    confirm(candidates, None if images is None else as_levels(images if images.is_floating_point() else images / 255))
    checked = list[FoundRecords]()
    for records in found:
        if records.candidates:
            records = replace(records, certain=torch.tensor([candidate.certain for candidate in records.candidates]))
        checked.append(records)
    return checked


def record_errors(view: RoundView, layer: LayerUpdate, model: dict[str, Tensor], victim: int) -> RecordErrors | None:
    """What each record of each class changes at the layer in one step; None unless the clients make one known step."""
    algorithm, counts = view.algorithm, view.example_counts[victim : victim + 1]
    if not has_classes(algorithm) or int(algorithm.steps(counts)) != 1:
        return None
    return _errors_at(algorithm, layer, model)


def _errors_at(algorithm: NetworkAlgorithm, layer: LayerUpdate, model: dict[str, Tensor]) -> RecordErrors:
    double = {name: value.double() for name, value in model.items()}

    def errors(records: Tensor) -> Tensor:
        return layer_errors(algorithm, double, records.reshape(len(records), *layer.shape), layer.name)

    return errors


def _possible_rows(
    view: RoundView, layer: LayerUpdate, model: dict[str, Tensor], victim: int, columns: TableColumns
) -> FoundRecords | None:
    """Rows of one client among all possible ones; None if the clients' algorithm is unknown.

    After several steps the changes of the bias are those in the middle between the model before and after them.
    """
    algorithm, counts = view.algorithm, view.example_counts[victim : victim + 1]
    if not has_classes(algorithm):
        return None
    rows, before = layer.rows_of(victim), model[f"{layer.name}.weight"]
    steps = int(algorithm.steps(counts))
    if all(name in view.deltas for name in model):
        share = (steps - 1) / (2 * steps)
        model = {name: value + share * view.deltas[name][victim] for name, value in model.items()}

    def inputs(records: Tensor) -> Tensor:
        shaped = records.to(before.dtype).reshape(len(records), *layer.shape)
        return layer_inputs(algorithm, model, shaped, layer.name)

    return search_possible(
        rows,
        int(counts),
        RowChanges(columns, _errors_at(algorithm, layer, model), inputs if layer.embedded else None),
        floor=_rounding_length(layer, victim, before),
        precision=layer.precision,
        one_step=steps == 1,
        rate=_declared_rate(view, victim),
    )


def _rounding_length(layer: LayerUpdate, victim: int, weight: Tensor) -> float:
    """Length of the rounding of a client's update: of a step in single precision, and of the changed weights."""
    rounding = (ROUNDING + layer.precision) * float(layer.rows_of(victim).norm())
    return rounding + torch.finfo(weight.dtype).eps * float(weight.double().norm())


def _declared_rate(view: RoundView, victim: int) -> float | None:
    """What the change by one row is multiplied by in a client's update, by its number of examples; None if unknown."""
    if not has_classes(view.algorithm):
        return None
    counts = view.example_counts[victim : victim + 1]
    sums = view.algorithm.step_sums(counts)
    return None if sums is None else float(sums[0]) / max(int(counts), 1)


def _check_embedded(view: RoundView, layer: LayerUpdate) -> None:
    """Refuses rows behind an embedding of categories that are not solved for.

    Raises:
        ViewError: the possible rows are unknown or too many, the clients' algorithm is unknown, or they make several
            steps, after which the embeddings are others; or the update has noise.
    """
    columns = TableColumns.of(view.auxiliary[COLUMNS]) if COLUMNS in view.auxiliary else None
    listed = columns is not None and columns.possible * layer.weight.shape[1] <= MOST_POSSIBLE
    known = has_classes(view.algorithm) and bool((view.algorithm.steps(view.example_counts) == 1).all())
    if not (listed and known) or layer.noise:
        lacking = "noise" if layer.noise else "no such columns" if not listed else "another or no algorithm"
        raise ViewError(
            f"behind an embedding of categories, rows are solved for only if the server has the columns (`auxiliary:"
            f" columns`), their possible rows times the layer's neurons are at most {MOST_POSSIBLE}, and clients make"
            f" one step of a known algorithm without noise; found {lacking}; tableak reconstructs rows without these"
        )


def _of_single_records(layer: LayerUpdate, example_counts: Tensor) -> LinearEstimate:
    """Least squares of the clients with one record, and nothing of the others."""
    energy = layer.bias.square().sum(1)
    points = torch.einsum("vn,vnd->vd", layer.bias, layer.weight.double()) / energy[:, None].clamp(min=1e-300)
    records = [point[None] if count == 1 else point[:0] for point, count in zip(points, example_counts, strict=True)]
    records = [record.reshape(-1, layer.weight.shape[2]) for record in records]
    predicted = 10 * (energy / layer.noise**2).log10()
    return linear_estimate(layer, records, None, predicted=predicted.masked_fill(example_counts != 1, torch.nan))
