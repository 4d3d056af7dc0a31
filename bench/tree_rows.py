"""How right rows from trees are on the published divisions of the stroke table: attacks beside baselines.

    python -m bench.tree_rows DIR [--clients 5 10] [--depths 3 6] [--aggregations bagging cyclic] [--rounds 10]

DIR has a folder nc_N with the clients' rows for each number of clients. Clients train with XGBoost's parameters of the
study (eta .3, lambda 1, 100 rounds there); bagging gives each round a tree of each client, cyclic one of one client.
The victims are the first two clients; the adversary holds the rows of the third client. A line has the
reconstruction accuracy of each attack and baseline, mean over victims and seeds, and the largest deviation from it.
"""

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.tree_counts import FIELDS, Rows, client_of
from fedleak.attacks.trees import MajorityFields, OwnColumns, OwnRows, TimberStrike, TreeRows
from fedleak.attacks.trees.row_estimates import TreeRowsAttack, TreeRowsEstimate
from fedleak.client.auxiliary_images import IMAGES, LABELS
from fedleak.client.tree_layout import FEATURE, LEFT, PADDING
from fedleak.client.trees import BASE_SCORE, TREES, TreesAlgorithm
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.table_columns import COLUMNS, TableColumns

ADVERSARY = 2
"""Client whose rows the adversary holds, as in the study."""
VICTIMS = [0, 1]
NUMBERS = ("age", "avg_glucose_level", "bmi")
GRID = 0.01
"""Step of the numbers."""


def columns_of(rows: Tensor, names: list[str]) -> TableColumns:
    """Columns of the study: three numbers, and categories as whole numbers."""
    is_number = torch.tensor([name in NUMBERS for name in names])
    step = torch.where(is_number, GRID, 1.0).double()
    lowest = (rows.double().amin(0) / step).round().long()
    highest = (rows.double().amax(0) / step).round().long()
    return TableColumns(
        column=torch.arange(len(names)),
        category=torch.zeros(len(names), dtype=torch.bool),
        step=step,
        origin=torch.zeros(len(names), dtype=torch.float64),
        lowest=lowest,
        highest=highest,
    )


class Federation:
    """XGBoost's trees of clients that go on from one forest."""

    def __init__(self, tables: list[Rows], params: dict[str, Any]) -> None:
        import xgboost

        self.xgboost = xgboost
        self.params = {"objective": "binary:logistic", "nthread": 1, "tree_method": "hist", **params}
        self.matrices = [xgboost.DMatrix(rows.numpy(), label=labels.numpy()) for rows, labels in tables]
        self.nodes = 2 ** (params["max_depth"] + 1) - 1
        self.model: dict[str, Any] | None = None

    def grown(self, client: int) -> tuple[dict[str, Any], Tensor, float]:
        """The next tree of a client, as XGBoost's text and as nodes ``(N, 8)``, and the base score of its message."""
        if self.model is None:
            booster = self.xgboost.train(self.params, self.matrices[client], 1)
        else:
            booster = self.xgboost.Booster(params=self.params)
            booster.load_model(bytearray(json.dumps(self.model), "utf-8"))
            booster.update(self.matrices[client], booster.num_boosted_rounds())
        model = json.loads(bytes(booster.save_raw("json")))
        stored = model["learner"]["gradient_booster"]["model"]["trees"][-1]
        tree = torch.zeros(self.nodes, len(FIELDS))
        tree[:, LEFT] = PADDING
        for field, name in FIELDS.items():
            tree[: len(stored[name]), field] = torch.tensor(np.array(stored[name], dtype=np.float64)).float()
        tree[tree[:, LEFT] < 0, FEATURE] = 0
        return model, tree, float(model["learner"]["learner_model_param"]["base_score"].strip("[]"))

    def append(self, models: list[dict[str, Any]]) -> None:
        """Puts the last trees of some clients into the forest, as the server does."""
        for model in models:
            if self.model is None:
                self.model = model
                continue
            parts = self.model["learner"]["gradient_booster"]["model"]
            tree = dict(model["learner"]["gradient_booster"]["model"]["trees"][-1], id=len(parts["trees"]))
            parts["trees"].append(tree)
            parts["tree_info"].append(0)
            parts["gbtree_model_param"]["num_trees"] = str(len(parts["trees"]))
            parts["iteration_indptr"].append(len(parts["trees"]))


def history_of(
    tables: list[Rows], names: list[str], params: dict[str, Any], aggregation: str, rounds: int, victims: list[int]
) -> tuple[History, dict[str, Tensor]]:
    """What the server sees of some clients in all rounds, and the ground truth of each message."""
    federation = Federation(tables, params)
    clients = len(tables)
    steps = rounds if aggregation == "bagging" else rounds * clients
    forest = torch.zeros(rounds * clients, federation.nodes, len(FIELDS))
    forest[:, :, LEFT] = PADDING
    base_score, grown = 0.0, 0
    models, messages = {}, []
    for step in range(steps):
        models[step] = {TREES: forest.clone(), BASE_SCORE: torch.tensor([base_score])}
        senders = list(range(clients)) if aggregation == "bagging" else [step % clients]
        sent = [federation.grown(client) for client in senders]
        federation.append([model for model, _, _ in sent])
        for client, (_, tree, score) in zip(senders, sent, strict=True):
            if client in victims:
                messages.append((step, client, tree[None], score))
            forest[grown] = tree
            grown += 1
        if step == 0:
            base_score = sent[0][2]
    known_rows, known_labels = tables[ADVERSARY]
    every = torch.cat([rows for rows, _ in tables])
    algorithm = TreesAlgorithm(
        objective="binary:logistic",
        eta=params["eta"],
        depth=params["max_depth"],
        reg_lambda=params["lambda"],
        min_child_weight=1.0,
        subsample=1.0,
        trees=1,
        aggregation="bagging" if aggregation == "bagging" else "cyclic",
        features=every.shape[1],
        seed=0,
    )
    senders_of = torch.tensor([client for _, client, _, _ in messages])
    view = History(
        round=0,
        pseudonyms=senders_of,
        example_counts=torch.tensor([len(tables[client][0]) for client in senders_of.tolist()]),
        deltas={
            TREES: torch.stack([tree for _, _, tree, _ in messages]),
            BASE_SCORE: torch.tensor([[score] for _, _, _, score in messages]),
        },
        model=models[0],
        algorithm=algorithm,
        auxiliary={IMAGES: known_rows, LABELS: known_labels, COLUMNS: columns_of(every, names).tensor},
        sent_in=torch.tensor([step for step, _, _, _ in messages]),
        round_models=models,
    )
    return view, truth_of([tables[client] for client in senders_of.tolist()], senders_of)


def truth_of(tables: list[Rows], clients: Tensor) -> dict[str, Tensor]:
    """Ground truth of messages, padded to the largest client."""
    most = max(len(labels) for _, labels in tables)
    records = torch.zeros(len(tables), most, tables[0][0].shape[1])
    labels = torch.full((len(tables), most), -1)
    hashes = torch.zeros(len(tables), most, 1, dtype=torch.uint8)
    for number, (rows, classes) in enumerate(tables):
        records[number, : len(rows)] = rows
        labels[number, : len(rows)] = classes
        hashes[number, : len(rows)] = 1
    return {"records": records, "record_labels": labels, "record_hash": hashes, "clients": clients}


def attacks(most_trees: int) -> dict[str, TreeRowsAttack]:
    """Attacks and baselines by name."""
    return {
        "own rows": OwnRows(),
        "own columns": OwnColumns(),
        "majority": MajorityFields(),
        "timberstrike": TimberStrike(most_trees=most_trees),
        "tree-rows": TreeRows(most_trees=most_trees),
        "tree-rows, masked": TreeRows(most_trees=most_trees, use_hessians=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[5, 10, 20, 30])
    parser.add_argument("--depths", type=int, nargs="+", default=[3, 4, 5, 6])
    parser.add_argument("--aggregations", nargs="+", default=["bagging", "cyclic"])
    parser.add_argument("--base-scores", nargs="+", default=["own"], help="own, or a number that all clients start at")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for clients, depth, aggregation, score in itertools.product(
        options.clients, options.depths, options.aggregations, options.base_scores
    ):
        folder = options.folder / f"nc_{clients}" / "data"
        names = json.loads((folder / "config" / "config.json").read_text(encoding="utf-8"))["features"]
        tables = [client_of(folder / f"client_{number}" / "train") for number in range(clients)]
        params: dict[str, Any] = {"eta": 0.3, "gamma": 0, "max_depth": depth, "lambda": 1}
        if score != "own":
            params["base_score"] = float(score)
        view, truth = history_of(tables, names, params, aggregation, options.rounds, VICTIMS)
        print(
            f"{clients} clients, depth {depth}, {aggregation}, base score {score}, {options.rounds} trees", flush=True
        )
        for name, attack in attacks(options.rounds).items():
            values = []
            for seed in range(options.seeds):
                estimate = attack(view, generator=generator_for(seed, "bench"))
                assert isinstance(estimate, TreeRowsEstimate)
                metrics = estimate.score(view, truth).metrics
                values.append(torch.stack(list(metrics.values())).numpy())
                if not name.startswith(("own", "timber", "tree")):
                    break
            by_victim = np.stack(values)  # (seeds, metrics, victims)
            accuracy = by_victim[:, 0]
            certified, false = by_victim[:, 2].mean(), int(by_victim[:, 3].sum())
            print(
                f"   {name:18s} {accuracy.mean():.3f} by victim {np.round(accuracy.mean(0), 3).tolist()}"
                f" by seed +-{np.abs(accuracy.mean(1) - accuracy.mean()).max():.3f}"
                f" exact {by_victim[:, 1].mean():.3f} certified {certified:.3f} false {false}",
                flush=True,
            )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
