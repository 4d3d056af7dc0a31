"""Rows of a table with known columns, from the update of a linear first layer."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.found_records import FoundRecords
from fedleak.attacks.reconstruction.layer_step import declared_rate, errors_at, record_errors, rounding_length
from fedleak.attacks.reconstruction.linear_layer import LayerUpdate, has_classes
from fedleak.attacks.reconstruction.peeled_rows import RowChanges
from fedleak.attacks.reconstruction.possible_rows import MOST_POSSIBLE, search_possible
from fedleak.attacks.reconstruction.record_span import RecordSpan
from fedleak.attacks.reconstruction.table_search import TableUpdate, search_table
from fedleak.client.layer_inputs import layer_inputs
from fedleak.core.errors import ViewError
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView


def rows_of_table(
    view: RoundView,
    layer: LayerUpdate,
    model: dict[str, Tensor],
    victim: int,
    columns: TableColumns,
    off_grid: Callable[[RecordSpan, Tensor, int], FoundRecords],
) -> FoundRecords:
    """Rows of one client whose table has known columns.

    Args:
        view: the round.
        layer: the update of the first layer.
        model: what the client received.
        victim: number of the client.
        columns: the table's columns.
        off_grid: search for records on any scale in a span, the rows of the update, and the number of records.
    """
    are_listed = columns.possible * layer.weight.shape[1] <= MOST_POSSIBLE
    weight = model[f"{layer.name}.weight"]
    bias = model[f"{layer.name}.bias"]
    update = TableUpdate(
        rows=layer.rows_of(victim),
        count=int(view.example_counts[victim]),
        columns=columns,
        errors=record_errors(view, layer, model, victim),
        rate=declared_rate(view, victim),
        floor=rounding_length(layer, victim, weight),
        precision=layer.precision,
    )

    def listed() -> FoundRecords | None:
        return _possible_rows(view, layer, model, victim, columns) if are_listed else None

    def search() -> FoundRecords:
        sent = torch.cat([weight, bias[:, None]], dim=1).double()
        span = RecordSpan(update.rows, update.count, precision=layer.precision, model=sent, errors=update.errors)
        return off_grid(span, update.rows, update.count)

    if layer.embedded:  # ratios are embedded rows
        possible = listed()
        assert possible is not None, "`check_embedded` refuses others"
        return possible
    return search_table(update, listed, search)


def _possible_rows(
    view: RoundView, layer: LayerUpdate, model: dict[str, Tensor], victim: int, columns: TableColumns
) -> FoundRecords | None:
    """Rows of one client among all possible ones; None if the clients' algorithm is unknown.

    After several steps the changes of the bias are those in the middle between the model before and after them.
    """
    algorithm = view.algorithm
    counts = view.example_counts[victim : victim + 1]
    if not has_classes(algorithm):
        return None
    weight_before = model[f"{layer.name}.weight"]
    steps = int(algorithm.steps(counts))
    if all(name in view.deltas for name in model):
        # Of T steps, the models before them are at 0, 1/T, ..., (T - 1)/T of the way: their middle is (T - 1) / 2T.
        share = (steps - 1) / (2 * steps)
        model = {name: value + share * view.deltas[name][victim] for name, value in model.items()}

    def layer_inputs_of(records: Tensor) -> Tensor:
        shaped = records.to(weight_before.dtype).reshape(len(records), *layer.shape)
        return layer_inputs(algorithm, model, shaped, layer.name)

    return search_possible(
        layer.rows_of(victim),
        int(counts),
        RowChanges(columns, errors_at(algorithm, layer, model), layer_inputs_of if layer.embedded else None),
        floor=rounding_length(layer, victim, weight_before),
        precision=layer.precision,
        one_step=steps == 1,
        rate=declared_rate(view, victim),
    )


def check_embedded(view: RoundView, layer: LayerUpdate) -> None:
    """Refuses rows behind an embedding of categories that are not solved for.

    Raises:
        ViewError: the possible rows are unknown or too many, the clients' algorithm is unknown, or they make several
            steps, after which the embeddings are others; or the update has noise.
    """
    columns = TableColumns.of(view.auxiliary[COLUMNS]) if COLUMNS in view.auxiliary else None
    are_listed = columns is not None and columns.possible * layer.weight.shape[1] <= MOST_POSSIBLE
    makes_known_step = has_classes(view.algorithm) and bool((view.algorithm.steps(view.example_counts) == 1).all())
    if are_listed and makes_known_step and not layer.noise:
        return
    lacking = "another or no algorithm"
    if layer.noise:
        lacking = "noise"
    elif not are_listed:
        lacking = "no such columns"
    raise ViewError(
        f"behind an embedding of categories, rows are solved for only if the server has the columns (`auxiliary:"
        f" columns`), their possible rows times the layer's neurons are at most {MOST_POSSIBLE}, and clients make"
        f" one step of a known algorithm without noise; found {lacking}; tableak reconstructs rows without these"
    )
