"""Clients of different size who grow trees on rows of a table, in a few rounds of bagging."""

import torch
from torch import Tensor

from fedleak.attacks.trees.tree_trainer import grow_tree
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.tree_layout import padding_trees
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.history import History
from fedleak.core.record_hash import record_hashes
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns
from fedleak.core.view import RoundView

Truth = dict[str, Tensor]
"""Ground truth by name."""
SIZES = (40, 57, 73)
"""Rows of each client."""
CENTRES = (2, 6, 10)
"""Value about which the numbers of each client are."""
KNOWN, LEVELS = 60, 13
"""Rows that the server has, a third about each centre, and values of each number."""
NUMBERS = 3
"""Columns with numbers; one more has a yes or no."""
ROUNDS = 6


def algorithm(*, depth: int = 3, reg_lambda: float = 1.0) -> TreesAlgorithm:
    """What the clients of the toy run."""
    return TreesAlgorithm(
        objective="binary:logistic",
        eta=0.3,
        depth=depth,
        reg_lambda=reg_lambda,
        min_child_weight=0.05,
        subsample=1.0,
        trees=1,
        aggregation="bagging",
        features=NUMBERS + 1,
        seed=0,
    )


def toy(*, depth: int = 3, reg_lambda: float = 1.0) -> tuple[RoundView, Truth]:
    """What the server sees of the first round, and the clients' rows with their classes."""
    view, truth = rounds_toy(depth=depth, reg_lambda=reg_lambda)
    clients = len(SIZES)
    return view.in_round(0), {name: value[:clients] for name, value in truth.items()}


def rounds_toy(*, depth: int = 3, reg_lambda: float = 1.0) -> tuple[History, Truth]:
    """What the server sees of all rounds, and for each message the sender's rows with their classes."""
    generator = generator_for(0, "trees toy")
    tables = [_people(size, centre, generator) for size, centre in zip(SIZES, CENTRES, strict=True)]
    known = [_people(KNOWN // len(CENTRES), centre, generator) for centre in CENTRES]
    known_rows, known_labels = (torch.cat(parts) for parts in zip(*known, strict=True))
    settings = algorithm(depth=depth, reg_lambda=reg_lambda)
    clients = len(SIZES)
    forest = padding_trees(clients * ROUNDS, settings.largest_tree)
    shares = torch.tensor([[float(labels.double().mean())] for _, labels in tables])
    models = {}
    messages = []
    for number in range(ROUNDS):
        models[number] = {TREES: forest.clone(), BASE_SCORE: shares.mean(0)}
        # A client's first tree starts at its own share of positives, later ones at that of the server's forest.
        scores = shares if number == 0 else shares.mean(0).expand(clients, 1)
        trees = [
            grow_tree(rows, labels, forest[: number * clients], float(score), settings)
            for (rows, labels), score in zip(tables, scores, strict=True)
        ]
        messages.append((torch.stack(trees)[:, None], scores))
        forest[number * clients : (number + 1) * clients] = torch.stack(trees)
    view = History(
        round=0,
        pseudonyms=torch.arange(clients).repeat(ROUNDS),
        example_counts=torch.tensor(SIZES).repeat(ROUNDS),
        deltas={
            TREES: torch.cat([trees for trees, _ in messages]),
            BASE_SCORE: torch.cat([scores for _, scores in messages]),
        },
        model=models[0],
        algorithm=settings,
        auxiliary={IMAGES: known_rows, LABELS: known_labels, COLUMNS: _columns().tensor},
        sent_in=torch.arange(ROUNDS).repeat_interleave(clients),
        round_models=models,
    )
    return view, _truth(tables)


def _people(count: int, centre: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of numbers that depend on each other, with a yes or no, and a class that depends on them."""
    common = torch.randn(count, 1, generator=generator)
    numbers = common + torch.randn(count, NUMBERS, generator=generator)
    levels = (centre + 1.5 * numbers).round().clamp(0, LEVELS - 1)
    answers = torch.randint(2, (count, 1), generator=generator)
    noise = torch.randn(count, generator=generator)
    labels = (numbers.sum(1) + answers[:, 0] + noise > 0.5).long()
    return torch.cat([levels, answers.float()], dim=1), labels


def _columns() -> TableColumns:
    count = NUMBERS + 1
    highest = torch.full((count,), LEVELS - 1)
    highest[-1] = 1
    return TableColumns(
        column=torch.arange(count),
        category=torch.zeros(count, dtype=torch.bool),
        step=torch.ones(count, dtype=torch.float64),
        origin=torch.zeros(count, dtype=torch.float64),
        lowest=torch.zeros(count, dtype=torch.int64),
        highest=highest,
    )


def _truth(tables: list[tuple[Tensor, Tensor]]) -> Truth:
    """Ground truth of each message, padded to the largest client."""
    most = max(SIZES)
    records = torch.zeros(len(tables), most, NUMBERS + 1)
    labels = torch.full((len(tables), most), -1)
    hashes = torch.zeros(len(tables), most, 32, dtype=torch.uint8)
    salts = torch.arange(len(tables) * 16, dtype=torch.uint8).reshape(-1, 16)
    for client, (rows, classes) in enumerate(tables):
        records[client, : len(rows)] = rows
        labels[client, : len(rows)] = classes
        hashes[client, : len(rows)] = record_hashes(rows, salts[client])
    truth = {"records": records, "record_labels": labels, "record_hash": hashes, "record_salt": salts}
    repeated = {name: value.repeat(ROUNDS, *[1] * (value.dim() - 1)) for name, value in truth.items()}
    return repeated | {"clients": torch.arange(len(tables)).repeat(ROUNDS)}
