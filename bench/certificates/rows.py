"""Rows of tables certified by `linear-inversion`: adjacent and equal rows, coarse updates, reports that are wrong."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from bench.certificates import Counts
from bench.certificates._clients import (
    Loss,
    Sent,
    Update,
    Updates,
    clipped,
    counted,
    each,
    masked,
    network_of,
    noisy,
    quantised,
    quantised_between,
    sparse,
    squared_error,
    stored_as,
    summed,
    train_together,
    trained,
    view_of,
)
from fedleak.attacks.reconstruction import LinearInversion
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView
from fedleak.datamodules.tables.schema import Column, encode

CLIENTS = 8
Change = Callable[[Tensor, Tensor, torch.Generator], None]
"""Changes values ``(N, C)`` and classes ``(N,)`` of all rows in place."""
Numbers = Callable[[Tensor, TableColumns], None]
"""Changes the rows ``(N, D)`` as the network gets them, in place."""


@dataclass(frozen=True)
class Federation:
    """Clients of one round that have rows of a table, and what the server is made to believe of them.

    Attributes:
        levels: number of levels of each number.
        sizes: number of values of each category.
        records: of a client.
        neurons: of each hidden layer.
        layers: number of hidden layers.
        classes: of the network.
        double: float64 instead of float32.
        steps: local steps, on all rows each, or on equal parts if `parts` says so.
        parts: whether each step has rows of its own.
        rate: learning rate.
        decay: weight decay that the server does not know.
        loss: of the clients; the server believes in cross-entropy.
        warm: rounds of training before.
        alike: change of the rows.
        off_grid: change of the rows as the network gets them.
        sent: change of the updates before they are sent.
        said_rate: factor of the learning rate that the server believes in.
        said_count: factor of the number of rows that the server believes in.
        said_steps: number of steps that the server believes in; None for the true one.
        pooled: clients whose updates are added without the server's knowledge.
    """

    levels: Sequence[int] = (10,)
    sizes: Sequence[int] = (2, 5)
    records: int = 12
    neurons: int = 60
    layers: int = 1
    classes: int = 3
    double: bool = False
    steps: int = 1
    parts: bool = False
    rate: float = 0.1
    decay: float = 0.0
    loss: Loss = functional.cross_entropy
    warm: int = 0
    alike: Change | None = None
    off_grid: Numbers | None = None
    sent: Sent | None = None
    said_rate: float = 1.0
    said_count: float = 1.0
    said_steps: int | None = None
    pooled: int = 1


def drawn_values(federation: Federation, draws: torch.Generator) -> tuple[TableColumns, Tensor, Tensor]:
    """Description of the table, values and classes of the rows of all clients."""
    count = CLIENTS * federation.records
    numbers = [
        (levels / 2 + levels / 5 * torch.randn(count, generator=draws)).round().clamp(0, levels - 1)
        for levels in federation.levels
    ]
    # Some categories are rare, as they are among people.
    shares = [1 / torch.arange(1, size + 1).double() for size in federation.sizes]
    categories = [torch.multinomial(share, count, replacement=True, generator=draws) for share in shares]
    values = torch.stack([*(own.long() for own in numbers), *categories], dim=1)
    labels = torch.randint(federation.classes, (count,), generator=draws)
    if federation.alike is not None:
        federation.alike(values, labels, draws)
    schema = [
        *(
            Column(name=f"number {place}", kind="number", lowest=0, highest=levels - 1)
            for place, levels in enumerate(federation.levels)
        ),
        *(
            Column(name=f"category {place}", values=[str(value) for value in range(size)])
            for place, size in enumerate(federation.sizes)
        ),
    ]
    return encode(schema, values).columns, values, labels


def batches_of(federation: Federation, rows: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Rows and classes of each step of a client."""
    if not federation.parts:
        return [(rows, labels)] * federation.steps
    return [(rows[step :: federation.steps], labels[step :: federation.steps]) for step in range(federation.steps)]


@dataclass(frozen=True)
class Round:
    """One round of a federation.

    Attributes:
        view: what the server sees and believes.
        holdings: numbers of the rows of each client.
        rows: ``(N, D)`` rows of all clients as the network gets them.
        columns: the description of the table.
    """

    view: RoundView
    holdings: Sequence[Tensor]
    rows: Tensor
    columns: TableColumns


def audited(federation: Federation, seed: int) -> Counts:
    """What the attack certifies of one round of a federation."""
    played = round_of(federation, seed)
    return counted(LinearInversion(failures=3), played.view, played.holdings, played.rows, _keys)


def round_of(federation: Federation, seed: int) -> Round:
    """A round, drawn with a seed."""
    draws = generator_for(seed, "certificates of rows")
    columns, values, labels = drawn_values(federation, draws)
    dtype = torch.float64 if federation.double else torch.float32
    rows = columns.encode(values).float()
    if federation.off_grid is not None:
        federation.off_grid(rows, columns)
    rows = rows.to(dtype)
    torch.manual_seed(seed)
    model, names = network_of(
        rows.shape[1], neurons=federation.neurons, layers=federation.layers, classes=federation.classes
    )
    model = model.to(dtype)
    holdings = list(torch.arange(len(rows)).reshape(CLIENTS, -1))

    def update_of(numbers: Tensor) -> Update:
        batches = batches_of(federation, rows[numbers], labels[numbers])
        return trained(model, batches, loss=federation.loss, rate=federation.rate, decay=federation.decay)

    train_together(model, update_of, holdings, rounds=federation.warm)
    updates: Updates = [update_of(numbers) for numbers in holdings]
    if federation.sent is not None:
        updates = federation.sent(updates, draws)
    if federation.pooled > 1:
        updates, holdings = summed(updates, holdings, clients=federation.pooled)
    count = round(federation.records * federation.said_count)
    steps = federation.said_steps or federation.steps
    learner = ImageClassifierAlgorithm(
        network=ClassifierOptions(name="mlp", hidden=federation.neurons, hidden_layers=federation.layers),
        image_shape=(1, 1, rows.shape[1]),
        num_classes=federation.classes,
        local=LocalTraining(
            optimizer="sgd",
            learning_rate=federation.rate * federation.said_rate,
            epochs=1 if federation.parts else steps,
            batch_size=-(-count // steps) if federation.parts and steps > 1 else None,
        ),
    )
    auxiliary = {"images": rows[-8:].float().reshape(8, 1, 1, -1), COLUMNS: columns.tensor}
    view = view_of(model, updates, names, count=count, learner=learner, auxiliary=auxiliary)
    return Round(view, holdings, rows, columns)


def _keys(rows: Tensor) -> list[tuple[int, ...]]:
    """Rows of a table as whole numbers that differ where rows do: steps are larger than 1e-4."""
    return [tuple(row) for row in rows.double().mul(1e4).round().long().tolist()]


# How rows may be alike.


def pairs(gap: int) -> Change:
    """Two and two rows of one class that differ in the first number only, by a number of levels."""

    def change(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
        highest = int(values[:, 0].max())
        values[1::2], labels[1::2] = values[::2], labels[::2]
        values[::2, 0] = values[::2, 0].clamp(max=highest - gap)
        values[1::2, 0] = values[::2, 0] + gap

    return change


def triples(gap: int) -> Change:
    """Three and three rows of one class, at a level and at one and minus two gaps from it."""

    def change(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
        whole = len(values) // 3 * 3
        middle = values[0:whole:3, 0].clamp(2 * gap, int(values[:, 0].max()) - gap)
        for place, times in enumerate((1, 1, -2)):
            values[place:whole:3], labels[place:whole:3] = values[0:whole:3], labels[0:whole:3]
            values[place:whole:3, 0] = middle + times * gap

    return change


def pairs_in_two_numbers(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
    """Two and two rows of one class, of which one has a level more of one number and a level less of another."""
    values[1::2], labels[1::2] = values[::2], labels[::2]
    values[::2, :2] = values[::2, :2].clamp(2, int(values[:, :2].max()) - 2)
    values[1::2, 0], values[1::2, 1] = values[::2, 0] + 2, values[::2, 1] - 2


def twice(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
    """Each row twice."""
    values[1::2], labels[1::2] = values[::2], labels[::2]


def some_twice(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
    """A third of the rows is there twice."""
    values[1::6], labels[1::6] = values[::6], labels[::6]


def in_two_classes(values: Tensor, labels: Tensor, _: torch.Generator) -> None:
    """Each row in two classes."""
    values[1::2] = values[::2]
    labels[1::2] = (labels[::2] + 1) % (int(labels.max()) + 1)


def all_equal(values: Tensor, _labels: Tensor, _: torch.Generator) -> None:
    values[:] = values[:1].clone()


def of_two_kinds(values: Tensor, _labels: Tensor, draws: torch.Generator) -> None:
    values[:] = values[torch.randint(2, (len(values),), generator=draws)]


def correlated(values: Tensor, _labels: Tensor, _: torch.Generator) -> None:
    """The last category follows from the first number, as a place does from its post code."""
    values[:, -1] = values[:, 0] % (int(values[:, -1].max()) + 1)


def alike_but_for_numbers(values: Tensor, labels: Tensor, draws: torch.Generator) -> None:
    """All categories equal, the numbers within a few levels, one class a client."""
    numbers = values.amax(0) > 8  # categories have at most eight values
    spread = torch.randint(-3, 4, values.shape, generator=draws)
    center = torch.where(numbers, values[:1].clamp(min=4), values[:1])
    values[:] = torch.where(numbers, (center + spread).minimum(values.amax(0)), center)
    labels[:] = labels[0]


# Rows that are not possible ones.


def sentinels(rows: Tensor, _: TableColumns) -> None:
    rows[::4, 0] = -99.0 / 10


def imputed_means(rows: Tensor, columns: TableColumns) -> None:
    rows[::4, 0] = float(columns.origin[0] + 4.37 * columns.step[0])


def missing_categories(rows: Tensor, columns: TableColumns) -> None:
    rows[::4, columns.groups[-1]] = 0


COARSE = Federation()
FINE = Federation(levels=(200,), records=6)
PEOPLE = Federation(levels=(1000, 1000, 1000), sizes=(2, 3, 4, 6, 8), records=8, neurons=100, layers=2, rate=0.1)
TABLES = {"10 levels": COARSE, "200 levels": FINE, "people": PEOPLE}


def conditions() -> Mapping[str, Callable[[int], Counts]]:
    """Each condition by its name."""
    made = dict[str, Federation]()
    for name, table in TABLES.items():
        adversarial = {
            "honest": table,
            "float64": replace(table, double=True),
            "one row": replace(table, records=1),
            "twice as many rows": replace(table, records=2 * table.records),
            "40 rows": replace(table, records=40),
            "4 neurons": replace(table, neurons=4),
            "16 neurons": replace(table, neurons=16),
            "2 classes": replace(table, classes=2),
            "2 classes, float64": replace(table, classes=2, double=True),
            "after 30 rounds": replace(table, warm=30),
            "pairs a level apart": replace(table, alike=pairs(1)),
            "pairs two levels apart": replace(table, alike=pairs(2)),
            "pairs two levels apart, float64": replace(table, alike=pairs(2), double=True),
            "pairs two levels apart, 2 classes": replace(table, alike=pairs(2), classes=2),
            "pairs four levels apart": replace(table, alike=pairs(4)),
            "two rows, two levels apart": replace(table, alike=pairs(2), records=2),
            "two rows, two levels apart, float64": replace(table, alike=pairs(2), records=2, double=True),
            "triples around a level": replace(table, alike=triples(2), records=6),
            "each row twice": replace(table, alike=twice),
            "each row twice, float64": replace(table, alike=twice, double=True),
            "some rows twice": replace(table, alike=some_twice),
            "each row in two classes": replace(table, alike=in_two_classes),
            "all rows equal": replace(table, alike=all_equal),
            "rows of two kinds": replace(table, alike=of_two_kinds),
            "a category follows from a number": replace(table, alike=correlated),
            "numbers within three levels, one class": replace(table, alike=alike_but_for_numbers),
            "twice the examples said": replace(table, said_count=2.0),
            "twice the examples said, float64": replace(table, said_count=2.0, double=True),
            "three times the examples said": replace(table, said_count=3.0),
            "half of the examples said": replace(table, said_count=0.5),
            "ten times the learning rate said": replace(table, said_rate=10.0),
            "half of the learning rate said": replace(table, said_rate=0.5),
            "2 steps, one said": replace(table, steps=2, said_steps=1),
            "4 steps on parts, one said": replace(table, steps=4, parts=True, said_steps=1),
            "one step, 2 said": replace(table, said_steps=2),
            "one step, 4 on parts said": replace(table, said_steps=4, parts=True),
            "4 steps on parts": replace(table, steps=4, parts=True),
            "4 steps on parts, pairs two levels apart": replace(table, steps=4, parts=True, alike=pairs(2)),
            "weight decay": replace(table, decay=0.1),
            "squared error": replace(table, loss=squared_error),
            "means off the grid": replace(table, off_grid=imputed_means),
            "-99 for missing": replace(table, off_grid=sentinels, records=8),
            "categories without a 1": replace(table, off_grid=missing_categories),
            "noise of 1e-7": replace(table, sent=noisy(1e-7)),
            "noise of 1e-6": replace(table, sent=noisy(1e-6)),
            "noise of 1e-7, pairs two levels apart": replace(table, sent=noisy(1e-7), alike=pairs(2)),
            "bfloat16": replace(table, sent=stored_as(torch.bfloat16)),
            "float16": replace(table, sent=stored_as(torch.float16)),
            "float16, pairs two levels apart": replace(table, sent=stored_as(torch.float16), alike=pairs(2)),
            **{f"{bits} bits a number": replace(table, sent=quantised(bits)) for bits in (16, 12, 10, 8, 6, 4)},
            "16 bits, pairs two levels apart": replace(table, sent=quantised(16), alike=pairs(2)),
            "8 bits from the smallest to the largest": replace(table, sent=quantised_between(8)),
            "8 bits, a scale for each neuron": replace(table, sent=quantised(8, by_row=True)),
            "largest tenth": replace(table, sent=sparse(0.1)),
            "largest half": replace(table, sent=sparse(0.5)),
            "random half": replace(table, sent=masked(0.5)),
            "clipped": replace(table, sent=clipped(0.01)),
            "negated": replace(table, sent=each(lambda value, _: -value)),
            "2 updates added": replace(table, pooled=2),
            "2 updates added, pairs two levels apart": replace(table, pooled=2, alike=pairs(2)),
        }
        made |= {f"{name}, {condition}": federation for condition, federation in adversarial.items()}
    made["two numbers of 100 levels, pairs in both"] = Federation(
        levels=(100, 100), sizes=(2,), alike=pairs_in_two_numbers
    )
    made["people, pairs in two numbers"] = replace(PEOPLE, alike=pairs_in_two_numbers)
    made["people, pairs in two numbers, float64"] = replace(PEOPLE, alike=pairs_in_two_numbers, double=True)
    return {name: functools.partial(audited, federation) for name, federation in made.items()}
