"""Records solved for from the update of a linear first layer."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack
from fedleak.attacks.reconstruction.face_search import search_faces
from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.layer_step import declared_rate, record_errors
from fedleak.attacks.reconstruction.linear_layer import (
    LayerUpdate,
    LinearEstimate,
    are_pixels,
    has_classes,
    layer_update,
    linear_estimate,
)
from fedleak.attacks.reconstruction.pixel_grid import as_levels
from fedleak.attacks.reconstruction.record_candidates import confirm
from fedleak.attacks.reconstruction.record_span import RecordSpan
from fedleak.attacks.reconstruction.record_supports import search_supports
from fedleak.attacks.reconstruction.sparse_changes import ZEROS
from fedleak.attacks.reconstruction.table_inversion import check_embedded, rows_of_table
from fedleak.attacks.reconstruction.update_precision import number_errors
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
        [Phong18], section III. [LTCodes26], Algorithm 1, for the subtraction.
        [Fowl22], for the differences.
        This project, for the certificate, the subtraction without the clients' algorithm, and the search.

    Example:
        >>> import torch
        >>> from fedleak.attacks.reconstruction import LinearInversion
        >>> from fedleak.attacks.reconstruction.toy import toy
        >>> view, truth = toy()
        >>> estimate = LinearInversion()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["recovered"].mean()), 2)
        1.0
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
            check_embedded(view, layer)
        if layer.noise:
            return _of_single_records(layer, view.example_counts)
        pixels = are_pixels(view)
        columns = TableColumns.of(view.auxiliary[COLUMNS]) if COLUMNS in view.auxiliary else None
        inputs = math.prod(layer.shape)
        if columns is not None and len(columns.column) != inputs:
            raise ViewError(f"expected a network with the {len(columns.column)} inputs of the columns; got {inputs}")
        solved = list[FoundRecords]()
        for victim in with_progress(range(view.victims)):
            solved.append(self._solve(view, layer, victim, pixels, columns, generator))
        solved = _confirmed(solved, view.auxiliary["images"] if pixels else None)
        if not pixels and columns is None and not any(len(client.records) for client in solved):
            self._check_capacity(view, layer)
        return linear_estimate(
            layer,
            [client.records for client in solved],
            [client.classes for client in solved],
            certain=[client.certain for client in solved],
        )

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
            off_grid = functools.partial(self._off_grid, generator=generator)
            return rows_of_table(view, layer, model, victim, columns, off_grid)
        weight = view.deltas[f"{layer.name}.weight"][victim].double()
        bias = view.deltas[f"{layer.name}.bias"][victim].double()
        sent = torch.cat([model[f"{layer.name}.weight"], model[f"{layer.name}.bias"][:, None]], dim=1).double()
        rows = layer.rows_of(victim)
        count = int(view.example_counts[victim])
        span = RecordSpan(
            rows,
            count,
            bounds=number_errors(torch.cat([weight, bias[:, None]], dim=1), sent),
            precision=layer.precision,
            model=sent,
            errors=record_errors(view, layer, model, victim),
            rate=declared_rate(view, victim) or 1.0,
            several_models=view.client_models is not None,
        )
        if pixels is not False:
            span.peel()
            if span.exact and self.programs and self.failures:
                search_faces(span, failures=self.failures, programs=self.programs, generator=generator)
        # Where nothing says whether records are pixels, they are so if some vector of the span is on the grid.
        if pixels or span.candidates:
            return span_records(span)
        return self._off_grid(span, rows, count, generator=generator)

    def _off_grid(self, span: RecordSpan, rows: Tensor, count: int, *, generator: torch.Generator) -> FoundRecords:
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

    @staticmethod
    def _check_capacity(view: RoundView, layer: LayerUpdate) -> None:
        """Refuses records off the grid of pixels that the search cannot find, rather than to say that there are none.

        Raises:
            ViewError: the clients' step is unknown, or they have more records than the layer's update has dimensions.
        """
        algorithm = view.algorithm
        fewest = int(view.example_counts.min())
        makes_known_step = has_classes(algorithm) and bool((algorithm.steps(view.example_counts) == 1).all())
        neurons, width = layer.weight.shape[1:]
        most = min(width, neurons // ZEROS)
        if not makes_known_step or fewest > most:
            clients = "such clients" if makes_known_step else "another or no algorithm"
            raise ViewError(
                "nothing found in the updates has values on a grid of 1/255 in [0, 1]; records on another scale, e.g."
                " standardised tables, may be in them all the same, but are found only for clients that classify with a"
                f" known algorithm in one step (--learner) and have at most {most} records here; found"
                f" {clients} with at least {fewest} records"
            )


def span_records(span: RecordSpan) -> FoundRecords:
    """Candidates of a span, and which of them are certain."""
    span.decide()
    records = torch.zeros(0, span.model.shape[1] - 1, dtype=torch.float64)
    if span.candidates:
        records = torch.stack([candidate.point[:-1] for candidate in span.candidates])
    return FoundRecords(
        records=records,
        classes=torch.tensor([candidate.label for candidate in span.candidates]),
        certain=torch.tensor([candidate.certain for candidate in span.candidates]),
        candidates=span.candidates,
    )


def _confirmed(clients: Sequence[FoundRecords], images: Tensor | None) -> list[FoundRecords]:
    """Without the certainty that the images of all clients, or the server's own, do not confirm."""
    candidates = [candidate for client in clients for candidate in client.candidates]
    image_levels = None
    if images is not None:
        image_levels = as_levels(images if images.is_floating_point() else images / 255)
    confirm(candidates, image_levels)
    checked = list[FoundRecords]()
    for client in clients:
        if client.candidates:
            client = replace(client, certain=torch.tensor([candidate.certain for candidate in client.candidates]))
        checked.append(client)
    return checked


def _of_single_records(layer: LayerUpdate, example_counts: Tensor) -> LinearEstimate:
    """Least squares of the clients with one record, and nothing of the others."""
    # Of rows h_j [x, 1] with noise of variance s^2: x = sum_j h_j G_j / sum_j h_j^2, with the error s^2 / sum_j h_j^2.
    energy = layer.bias.square().sum(1)
    points = torch.einsum("vn,vnd->vd", layer.bias, layer.weight.double()) / energy[:, None].clamp(min=1e-300)
    records = []
    for point, count in zip(points, example_counts.tolist(), strict=True):
        of_client = point[None] if count == 1 else point[:0]
        records.append(of_client.reshape(-1, layer.weight.shape[2]))
    predicted_psnr = 10 * (energy / layer.noise**2).log10()
    is_single = example_counts == 1
    return linear_estimate(layer, records, None, predicted=predicted_psnr.masked_fill(~is_single, torch.nan))
