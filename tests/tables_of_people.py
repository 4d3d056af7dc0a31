"""Tables of people with more possible rows than can be listed, and what a server sees of clients that have them."""

import torch
from torch import Tensor

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.record_hash import RECORD_ORIGIN, RECORD_STEP, record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView
from fedleak.datamodules.tables.schema import Column, encode

LEVELS, SIZES = 1000, (2, 3, 4, 6, 8)
CLASSES = 3
TABLEAK = ClassifierOptions(name="mlp", hidden=100, hidden_layers=2)
ONE_STEP = LocalTraining(optimizer="sgd", learning_rate=0.01)
SCHEMA = (
    *(Column(name=f"number {place}", kind="number", lowest=0, highest=LEVELS - 1) for place in range(3)),
    *(
        Column(name=f"category {place}", values=[str(value) for value in range(size)])
        for place, size in enumerate(SIZES)
    ),
)


def people(count: int, *, seed: int = 0) -> tuple[TableColumns, Tensor, Tensor]:
    """Description, values ``(count, 8)`` and classes of normal numbers and of categories of which some are rare."""
    draws = generator_for(seed, "people")
    numbers = [
        (LEVELS / 2 + LEVELS / 6 * torch.randn(count, generator=draws)).round().clamp(0, LEVELS - 1) for _ in range(3)
    ]
    weights = [1 / torch.arange(1, size + 1).double() for size in SIZES]
    categories = [torch.multinomial(weight, count, replacement=True, generator=draws) for weight in weights]
    values = torch.stack([*numbers, *(own.double() for own in categories)], dim=1).long()
    labels = torch.randint(CLASSES, (count,), generator=draws)
    return encode(SCHEMA, values).columns, values, labels


def people_view(
    values: Tensor,
    labels: Tensor,
    columns: TableColumns,
    *,
    clients: int = 1,
    double: bool = False,
    local: LocalTraining = ONE_STEP,
    network: ClassifierOptions | None = None,
    seed: int = 0,
) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of clients that share the rows equally, and the truth."""
    rows = columns.encode(values).float().to(torch.float64 if double else torch.float32)
    shape = (1, 1, rows.shape[1])
    rows = rows.reshape(-1, *shape)
    learner = ImageClassifierAlgorithm(network=network or TABLEAK, image_shape=shape, num_classes=CLASSES, local=local)
    made = build_classifier(
        network or TABLEAK, image_shape=shape, classes=CLASSES, generator=generator_for(seed, "model")
    )
    model = {name: value.detach().to(rows.dtype) for name, value in made.named_parameters()}
    owned = torch.arange(len(rows)).reshape(clients, -1)
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(clients),
        example_counts=torch.full((clients,), owned.shape[1]),
        deltas=learner.simulate_examples(model, rows, labels, owned, generator=generator_for(seed, "order")),
        model=model,
        auxiliary={"images": rows[:4].float(), COLUMNS: columns.tensor},
        algorithm=learner,
    )
    grid = columns.step.reshape(shape), columns.origin.reshape(shape)
    salts = (torch.arange(clients * 16) % 256).to(torch.uint8).reshape(-1, 16)
    hashes = [record_hashes(rows[own].float(), salt, grid) for own, salt in zip(owned, salts, strict=True)]
    truth = {
        "record_hash": torch.stack(hashes),
        "record_salt": salts,
        "record_labels": labels[owned],
        "records": rows[owned].float(),
        RECORD_STEP: grid[0].expand(clients, *shape),
        RECORD_ORIGIN: grid[1].expand(clients, *shape),
    }
    return view, truth
