"""How many nodes `tree-counts` counts exactly in XGBoost's first trees, on five data sets.

    python -m bench.tree_counts [--stroke DIR]

Each set is divided among three clients at random; stroke is that of one published division among five. A line has
means over clients, seeds and sets: the share of exact nodes, of certified nodes, and the number of false ones. With a
drawing of rows (subsample .8), and where a setting is declared wrongly, the clients declare to use all rows, and
the attack has to notice by itself.
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor

from fedleak.attacks.trees import TreeCounts
from fedleak.client.tree_layout import (
    DEFAULT_LEFT,
    FEATURE,
    GAIN,
    HESSIAN,
    LEFT,
    RIGHT,
    THRESHOLD,
    WEIGHT,
    padding_trees,
)
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.view import RoundView

FIELDS = {
    LEFT: "left_children",
    RIGHT: "right_children",
    FEATURE: "split_indices",
    THRESHOLD: "split_conditions",
    WEIGHT: "base_weights",
    HESSIAN: "sum_hessian",
    GAIN: "loss_changes",
    DEFAULT_LEFT: "default_left",
}
"""XGBoost's names of the fields of a node."""
Rows = tuple[Tensor, Tensor]
"""Rows ``(R, F)`` float32 and classes ``(R,)``."""
SEEDS = 1
VARIANTS = {
    "sums, size": {},
    "masked, size": {"use_hessians": False},
    "sums, no size": {"knows_size": False},
    "masked, no size": {"use_hessians": False, "knows_size": False},
}


def tables(stroke: Path | None) -> dict[str, Rows]:
    """Rows and a yes or no of each data set."""
    loaders: list[tuple[str, Any, Callable[[Any], Any]]] = [
        ("breast cancer", datasets.load_breast_cancer(), lambda target: target == 1),
        ("diabetes", datasets.load_diabetes(), lambda target: target > np.median(target)),
        ("wine", datasets.load_wine(), lambda target: target == 0),
        ("digits", datasets.load_digits(), lambda target: target == 8),
    ]
    tables_by_name = {}
    for name, loaded, positive in loaders:
        labels = torch.from_numpy(positive(loaded.target)).long()
        tables_by_name[name] = (torch.from_numpy(loaded.data).float(), labels)
    if stroke is not None:
        tables_by_name["stroke"] = client_of(stroke / "nc_5" / "data" / "client_0" / "train")
    return tables_by_name


def client_of(folder: Path) -> Rows:
    """Rows of one client of the published division."""
    rows = torch.from_numpy(np.load(folder / "x_train.npy", allow_pickle=False).astype(np.float32))
    labels = torch.from_numpy(np.load(folder / "y_train.npy", allow_pickle=False).astype(np.int64))
    return rows, labels.flatten()


def clients_of(table: Rows, seed: int) -> list[Rows]:
    """A division among a few clients of different sizes."""
    rows, labels = table
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    ends = [0, len(rows) // 5, len(rows) // 2, len(rows)]
    return [(rows[order[start:end]], labels[order[start:end]]) for start, end in itertools.pairwise(ends)]


def first_tree(table: Rows, params: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """``(1, N, 8)`` the first tree, and its base score ``(1,)``."""
    import xgboost

    matrix = xgboost.DMatrix(table[0].numpy(), label=table[1].numpy())
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1, **params}, matrix, 1)
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    base_score = torch.tensor([float(learner["learner_model_param"]["base_score"].strip("[]"))])
    stored = learner["gradient_booster"]["model"]["trees"][0]
    tree = torch.zeros(len(stored["left_children"]), len(FIELDS))
    for field, name in FIELDS.items():
        tree[:, field] = torch.tensor(np.array(stored[name], dtype=np.float64)).float()
    tree[tree[:, LEFT] < 0, FEATURE] = 0
    return tree[None], base_score


def view_of(table: Rows, params: dict[str, Any], declared: dict[str, Any]) -> tuple[RoundView, dict[str, Tensor]]:
    """What the server sees of one client's first round, and the ground truth."""
    trees, base_score = first_tree(table, params)
    algorithm = TreesAlgorithm(
        objective="binary:logistic",
        eta=declared.get("eta", params["eta"]),
        depth=params["max_depth"],
        reg_lambda=declared.get("lambda", params["lambda"]),
        min_child_weight=1.0,
        subsample=1.0,
        trees=1,
        aggregation="bagging",
        features=table[0].shape[1],
        seed=0,
    )
    view = RoundView(
        round=0,
        pseudonyms=torch.tensor([0]),
        example_counts=torch.tensor([len(table[0])]),
        deltas={TREES: trees[None], BASE_SCORE: base_score[None]},
        model={TREES: padding_trees(1, trees.shape[1]), BASE_SCORE: torch.zeros(1)},
        algorithm=algorithm,
    )
    hashes = torch.ones(1, len(table[0]), 32, dtype=torch.uint8)
    return view, {"records": table[0][None], "record_labels": table[1][None], "record_hash": hashes}


def damaged(view: RoundView, kind: str, seed: int) -> RoundView:
    """The view with noise on, or fewer digits of, the numbers of each node, or with a wrong base score."""
    trees = view.deltas[TREES].clone()
    numbers = trees[..., [THRESHOLD, WEIGHT, HESSIAN]]
    base_score = view.deltas[BASE_SCORE]
    if kind == "noise 1e-4":
        numbers = numbers * (1 + 1e-4 * torch.randn(numbers.shape, generator=torch.Generator().manual_seed(seed)))
    if kind == "bfloat16":
        numbers = numbers.bfloat16().float()
    if kind == "four digits":
        numbers = torch.tensor([float(f"{float(value):.3e}") for value in numbers.flatten()]).reshape(numbers.shape)
    if kind == "wrong base score":
        base_score = base_score * 1.01
    is_leaf = trees[..., LEFT] < 0
    trees[..., THRESHOLD] = torch.where(is_leaf, numbers[..., 0], trees[..., THRESHOLD])
    trees[..., [WEIGHT, HESSIAN]] = numbers[..., 1:]
    return dataclasses.replace(view, deltas={TREES: trees, BASE_SCORE: base_score})


def settings() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """Names, XGBoost's parameters, what is declared instead, and a damage."""
    for depth, reg_lambda, subsample in itertools.product((3, 6), (0, 1), (1.0, 0.8)):
        params = {"eta": 0.3, "max_depth": depth, "lambda": reg_lambda, "subsample": subsample}
        yield f"depth {depth}, lambda {reg_lambda}, subsample {subsample:g}", params, {}, ""
    usual = {"eta": 0.3, "max_depth": 6, "lambda": 1, "subsample": 1.0}
    yield "min_child_weight 5", {**usual, "min_child_weight": 5}, {}, ""
    yield "base_score 0.5", {**usual, "base_score": 0.5}, {}, ""
    yield "scale_pos_weight 3 (not declared)", {**usual, "scale_pos_weight": 3}, {}, ""
    yield "scale_pos_weight 2.5 (not declared)", {**usual, "scale_pos_weight": 2.5}, {}, ""
    yield "alpha 1 (not declared)", {**usual, "alpha": 1}, {}, ""
    yield "lambda 1 declared as 0", usual, {"lambda": 0.0}, ""
    yield "lambda 1 declared as 2", usual, {"lambda": 2.0}, ""
    yield "eta 0.3 declared as 0.1", usual, {"eta": 0.1}, ""
    for damage in ("noise 1e-4", "bfloat16", "four digits", "wrong base score"):
        yield damage, usual, {}, damage


def measured(tables_by_name: dict[str, Rows], params: dict[str, Any], declared: dict[str, Any], damage: str) -> None:
    """Prints a line for each variant."""
    values: dict[str, list[list[float]]] = {variant: [] for variant in VARIANTS}
    for table, seed in itertools.product(tables_by_name.values(), range(SEEDS)):
        for client in clients_of(table, seed):
            view, truth = view_of(client, {**params, "seed": seed}, declared)
            if damage:
                view = damaged(view, damage, seed)
            for variant, arguments in VARIANTS.items():
                estimate = TreeCounts(**arguments)(view, generator=torch.Generator())
                scores = estimate.score(view, truth).metrics
                values[variant].append([float(value) for value in scores.values()])
    for variant, of_clients in values.items():
        exact, certified, _ = np.mean(of_clients, 0)
        false = int(np.sum(of_clients, 0)[2])
        print(
            f"   {variant:16s} exact {exact:.3f} certified {certified:.3f} false {false} n {len(of_clients)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stroke", type=Path, help="folder of the published divisions of the stroke table")
    options = parser.parse_args()
    tables_by_name = tables(options.stroke)
    for name, params, declared, damage in settings():
        print(name, flush=True)
        measured(tables_by_name, params, declared, damage)


if __name__ == "__main__":
    main()
