"""Checks of a received model against servers that send a model made to leak, and against honest rounds.

python -m bench.model_checks --root DATA --data mnist --out runs/model_checks

Honest federated trainings from 40 initialisations; after rounds 0, 10 and 100, each client has the global model, that
of the round before, its own last update and 16 images. `detection.csv` has for each network, deviation and check the
AUC and the share of clients whose check exceeds the threshold of split conformal prediction at a false-positive rate of
.01, and for all checks together at .05 (`joint`). Thresholds are those of the honest clients of half of the trainings;
the others give the false positives, and the models that a server manipulates. `frontier.csv` and `frontier.svg` have
the recovered share of a sum of 10 clients, and the share of clients that detect it, over the strength of a deviation.
"""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn
import torch
from torch import Tensor

from fedleak.attacks.reconstruction import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.client.cohort import Cohort
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.layer_inputs import layer_inputs
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.mnist import MNIST
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.defenses.model_checks.allow_list import model_hash
from fedleak.defenses.model_checks.base import ReceivedModel, model_checks
from fedleak.server.canary_unit import CanaryUnit
from fedleak.server.imprint import Imprint
from fedleak.server.model_manipulation import ModelManipulation, SentModels
from fedleak.server.quantile_bias import QuantileBias
from fedleak.server.soliton import Soliton
from fedleak.server.sparse_imprint import SparseImprint
from fedleak.server.suppression import Suppression
from fedleak.server.trap_weights import TrapWeights
from fedleak_recorder.conformal import conformal_thresholds

Model = dict[str, Tensor]
CLIENTS, IMAGES, SUM, CLASSES = 200, 16, 10, 10
TRAININGS = 40
"""Trainings of one network by default, half of which give the thresholds."""
ROUNDS, FRONTIER_ROUNDS = (0, 10, 100), (0, 10)
DATA = {"mnist": (MNIST, (1, 28, 28)), "cifar10": (CIFAR10, (3, 32, 32))}
NETWORKS = {
    "MLP of 1,000, N(0, 0.5^2)": ClassifierOptions(name="mlp", hidden=1000, weights="normal"),
    "MLP of 1,000, uniform": ClassifierOptions(name="mlp", hidden=1000),
    "two convolutions": ClassifierOptions(),
}
RECORDS = SUM * IMAGES
DEVIATIONS: dict[str, ModelManipulation] = {
    "imprint": Imprint(),
    "sparse imprint": SparseImprint(),
    "trap weights, .95": TrapWeights(),
    "trap weights, .5": TrapWeights(scale=0.5),
    "quantile bias": QuantileBias(records=RECORDS),
    "soliton": Soliton(records=RECORDS),
    "suppression": Suppression(participants=SUM),
    "canary unit": CanaryUnit(),
}
STRENGTHS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)
HASHES = ("allow-list", "commitment")
SINGLE_RATE, JOINT_RATE = 0.01, 0.05


@dataclass(frozen=True)
class World:
    """Clients, and the models of honest trainings.

    Attributes:
        models: of each training, by the number of the round: the global model that is sent, and the one before it.
    """

    algorithm: ImageClassifierAlgorithm
    cohort: Cohort
    examples: Tensor
    models: Sequence[Mapping[int, tuple[Model, Model]]]

    def inputs(self, client: int) -> tuple[Tensor, Tensor]:
        return self.algorithm.fields({name: value[client] for name, value in self.cohort.examples.items()})

    def own(self, model: Model) -> Tensor:
        """``(M, D)`` what the first layer gets of the server's own examples."""
        return layer_inputs(self.algorithm, model, self.examples, "body.1")


def world(
    options: ClassifierOptions, data_name: str, root: str, trainings: int, *, rounds: Sequence[int] = ROUNDS
) -> World:
    kind, shape = DATA[data_name]
    split = ClientSplit(scheme="iid", clients=CLIENTS, examples_per_client=IMAGES)
    data = kind(root=root, split=split, auxiliary_per_class=100)
    data.setup("fit")
    algorithm = ImageClassifierAlgorithm(
        network=options,
        image_shape=shape,
        num_classes=CLASSES,
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
    )
    cohort = data.build_cohort(0, torch.arange(CLIENTS))
    models = [honest_training(algorithm, cohort, options, shape, seed, rounds) for seed in range(trainings)]
    return World(algorithm, cohort, algorithm.fields(data.auxiliary())[0], models)


def honest_training(
    algorithm: ImageClassifierAlgorithm,
    cohort: Cohort,
    options: ClassifierOptions,
    shape: tuple[int, int, int],
    seed: int,
    rounds: Sequence[int],
) -> dict[int, tuple[Model, Model]]:
    """The global models of one training before each of some rounds, and before the round before that."""
    before, model = (drawn(options, shape, start) for start in (CLIENTS + seed, seed))
    kept = {}
    for number in range(max(rounds) + 1):
        if number in rounds:
            kept[number] = model, before
        chosen = torch.randperm(CLIENTS, generator=generator_for(seed, "bench clients", number))[:SUM]
        deltas = algorithm.train(model, cohort.select(chosen), seed=number).deltas
        before, model = model, {name: value + deltas[name].mean(0) for name, value in model.items()}
    return kept


def drawn(options: ClassifierOptions, shape: tuple[int, int, int], seed: int) -> Model:
    generator = generator_for(seed, "bench model")
    network = build_classifier(options, image_shape=shape, classes=CLASSES, generator=generator)
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def statistics(own: World, training: int, number: int, sent: SentModels) -> pd.DataFrame:
    """Every check of each client that is sent a model in a round: a row per client, a column per check."""
    checks = {name: kind() for name, kind in model_checks().items()}
    honest, before = own.models[training][number]
    hashes = [model_hash({name: value[m] for name, value in sent.models.items()}) for m in range(len(sent))]
    rows, fixed = [], dict[tuple[int, str], float]()
    for place, client in enumerate(sent.clients.tolist()):
        index = int(sent.index[place])
        inputs, labels = own.inputs(client)
        last = own.algorithm.train(before, own.cohort.select(torch.tensor([client])), seed=number).deltas
        received = ReceivedModel(
            network=own.algorithm.template,
            model={name: value[index] for name, value in sent.models.items()},
            reference=before,
            inputs=inputs,
            labels=labels,
            is_first=number == 0,
            own_delta=None if number == 0 else {name: value[0] for name, value in last.items()},
            allowed=frozenset({model_hash(honest)}) if number == 0 else None,
            commitments=[hashes[int(sent.index[other])] for other in range(len(sent.clients)) if other != place][:SUM],
        )
        row = {}
        for name, check in checks.items():
            if check.reads_examples or name == "commitment" or (index, name) not in fixed:
                fixed[index, name] = check.statistic(received)
            row[name] = fixed[index, name]
        rows.append({"client": client, "model": index, **row})
    return pd.DataFrame(rows)


def auc(positives: Tensor, negatives: Tensor) -> float:
    """Probability that a positive is above a negative, ties counted half."""
    difference = positives[:, None] - negatives
    return float(((difference > 0).double() + (difference == 0).double() / 2).mean())


def honest_statistics(own: World, number: int) -> pd.DataFrame:
    """The checks of the `CLIENTS` honest clients of one round, an equal part of them in each training."""
    each, parts = CLIENTS // len(own.models), []
    for training, models in enumerate(own.models):
        clients = torch.arange(each) + each * training
        frame = statistics(own, training, number, SentModels.same(models[number][0], clients))
        parts.append(frame.assign(training=training))
    return pd.concat(parts, ignore_index=True)


def manipulated(own: World, training: int, number: int, manipulation: ModelManipulation, draw: int) -> SentModels:
    """What the server of a training sends to `SUM` clients, others in each draw."""
    model, _ = own.models[training][number]
    examples = own.own(model) if manipulation.uses_examples else torch.zeros(0, 0)
    clients = torch.arange(draw * SUM, (draw + 1) * SUM) % CLIENTS
    return manipulation.sent(model, examples, clients, generator=generator_for(draw, "bench deviation", number))


def detection(name: str, own: World, deviations: Mapping[str, ModelManipulation], draws: int) -> pd.DataFrame:
    """AUC and TPR of every check; the even trainings give the thresholds."""
    checks, odd = list(model_checks()), range(1, len(own.models), 2)
    negatives = pd.concat([honest_statistics(own, number) for number in ROUNDS])
    calibration, rest = (
        torch.from_numpy(negatives[negatives["training"] % 2 == half][checks].to_numpy()) for half in (0, 1)
    )
    limits = [conformal_thresholds(column, SINGLE_RATE).values for column in calibration.T]
    single = torch.from_numpy(np.concatenate(limits))
    joint = torch.from_numpy(conformal_thresholds(calibration, JOINT_RATE).values)
    found = {"honest": rest}
    for label, manipulation in deviations.items():
        sent = [
            (odd[draw], n, manipulated(own, odd[draw], n, manipulation, draw)) for n in ROUNDS for draw in range(draws)
        ]
        frame = pd.concat([statistics(own, *one) for one in sent])
        if isinstance(manipulation, Suppression):
            found |= {
                f"{label}, {who}": torch.from_numpy(frame[frame["model"] == m][checks].to_numpy())
                for m, who in ((0, "the target"), (1, "all others"))
            }
        else:
            found[label] = torch.from_numpy(frame[checks].to_numpy())
    rows = []
    for label, values in found.items():
        for column, check in enumerate(checks):
            mine = values[:, column]
            rate = float((mine > single[column]).double().mean())
            rows.append((name, label, check, auc(mine, rest[:, column]), rate))
        rows.append((name, label, "joint", float("nan"), float((values > joint).any(1).double().mean())))
        print(label, {check: round(rate, 2) for _, _, check, _, rate in rows[-len(checks) - 1 :]}, flush=True)
    made = pd.DataFrame(rows, columns=["network", "deviation", "check", "auc", "tpr"])
    return made.assign(clients=made["deviation"].map({label: len(values) for label, values in found.items()}))


def recovery(own: World, training: int, number: int, manipulation: ModelManipulation, draw: int) -> float:
    """Share of the images of one sum of `SUM` clients that `linear-inversion` recovers exactly."""
    sent = manipulated(own, training, number, manipulation, draw)
    parts = own.cohort.select(sent.clients)
    sums: Model = {}
    for place in range(SUM):
        model = {name: value[int(sent.index[place])] for name, value in sent.models.items()}
        deltas = own.algorithm.train(model, parts.select(torch.tensor([place])), seed=0).deltas
        sums = {name: value + sums.get(name, 0) for name, value in deltas.items()}
    view = RoundView(
        round=number,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.tensor([IMAGES]),
        deltas=sums,
        model={name: value[0] for name, value in sent.models.items()},
        algorithm=own.algorithm,
        auxiliary={"images": own.examples},
    )
    estimate = LinearInversion(programs=0)(view, generator=generator_for(0, "bench attack"))
    assert isinstance(estimate, LinearEstimate)
    found = estimate.records[0]
    true, _ = own.algorithm.fields({name: value.flatten(0, 1) for name, value in parts.examples.items()})
    whole = {(255 * image).round().to(torch.uint8).numpy().tobytes() for image in found}
    return sum((255 * image).round().to(torch.uint8).numpy().tobytes() in whole for image in true) / len(true)


def canary(own: World, number: int, targets: int = 50) -> pd.DataFrame:
    """How often the canary unit changes in a sum of `SUM` clients with the target, and in one without it."""
    model, _ = own.models[0][number]
    inputs = own.own(model)
    hits = []
    for target in range(targets):
        clients = torch.arange(SUM) + SUM * target % (CLIENTS - 2 * SUM)
        image = own.inputs(int(clients[0]))[0][:1]
        examples = torch.cat([layer_inputs(own.algorithm, model, image, "body.1"), inputs])
        manipulation = CanaryUnit(unit=target)
        sent = manipulation.sent(model, examples, clients, generator=torch.Generator()).first
        deltas = own.algorithm.train(sent, own.cohort.select(torch.cat([clients, clients[1:] + SUM])), seed=0).deltas
        change = deltas["body.1.bias"]
        sums = torch.stack([change[:SUM].sum(0), change[SUM:].sum(0)])
        hits.append([float(own_sum) for own_sum in manipulation.contains_target(sums)])
    return pd.DataFrame(hits, columns=["with the target", "without it"]).mean().to_frame(f"round {number}")


def frontier(own: World, draws: int) -> pd.DataFrame:
    """Recovery and detection over the strength of each deviation, in the first round and after 10.

    By all checks but those that compare hashes, at a joint false-positive rate of `JOINT_RATE`.
    """
    checks = [name for name in model_checks() if name not in HASHES]
    rows = []
    for number in FRONTIER_ROUNDS:
        honest = torch.from_numpy(honest_statistics(own, number)[checks].to_numpy())
        joint = torch.from_numpy(conformal_thresholds(honest, JOINT_RATE).values)
        for label, manipulation in DEVIATIONS.items():
            if isinstance(manipulation, Suppression | CanaryUnit):
                continue
            for strength, draw in itertools.product(STRENGTHS, range(draws)):
                weaker = dataclasses.replace(manipulation, strength=strength)
                frame = statistics(own, draw, number, manipulated(own, draw, number, weaker, draw))
                over = torch.from_numpy(frame[checks].to_numpy()) > joint
                detected = float(over.any(1).double().mean())
                rows.append((label, number, strength, draw, recovery(own, draw, number, weaker, draw), detected))
                print(rows[-1], flush=True)
    return pd.DataFrame(rows, columns=["deviation", "round", "strength", "draw", "recovered", "detected"])


def draw_frontier(frame: pd.DataFrame, path: Path) -> None:
    """Draws both shares over the strength: a row of panels for each round, a column for each deviation."""
    what = {"recovered": "images recovered", "detected": "clients that detect it"}
    long = frame.rename(columns=what).melt(
        ["deviation", "round", "strength", "draw"], list(what.values()), "share of", "share"
    )
    long["round"] = long["round"].map("after {} rounds".format)
    grid = seaborn.relplot(
        long, x="strength", y="share", hue="share of", style="share of", row="round", col="deviation",
        kind="line", markers=True, errorbar=("pi", 100), height=1.9, aspect=0.85,
    )  # fmt: skip
    grid.set(xscale="log", ylim=(-0.03, 1.03))
    grid.set_titles("{col_name}\n{row_name}", size="medium")
    seaborn.move_legend(grid, "lower center", ncol=2, bbox_to_anchor=(0.45, -0.1), title=None)
    grid.savefig(path, metadata={"Date": None})


def main() -> None:
    """Runs all networks, then the frontier of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the data sets")
    parser.add_argument("--data", choices=DATA, default="mnist")
    parser.add_argument("--out", type=Path, default=Path("runs/model_checks"))
    parser.add_argument("--draws", type=int, default=4, help="draws of a deviation, of 10 clients and each round")
    parser.add_argument("--trainings", type=int, default=TRAININGS, help="honest trainings, that divide 200")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--deviations", nargs="+", choices=DEVIATIONS, default=list(DEVIATIONS))
    parser.add_argument("--canary", action="store_true", help="only membership by a canary unit")
    parser.add_argument("--frontier", action="store_true", help="only the frontier")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    worlds = {
        name: functools.partial(world, options, chosen.data, chosen.root, chosen.trainings)
        for name, options in NETWORKS.items()
    }
    if chosen.canary:
        first = next(iter(worlds.values()))()
        print(pd.concat([canary(first, number) for number in ROUNDS], axis=1).to_string())
        return
    if chosen.frontier:
        frame = frontier(next(iter(worlds.values()))(rounds=FRONTIER_ROUNDS), chosen.draws)
        frame.to_csv(chosen.out / "frontier.csv", index=False)
        draw_frontier(frame, chosen.out / "frontier.svg")
        return
    parts = []
    for name in chosen.networks:
        wanted = {label: DEVIATIONS[label] for label in chosen.deviations}
        deep = {label: one for label, one in wanted.items() if isinstance(one, Suppression)}
        print(name, flush=True)
        parts.append(detection(name, worlds[name](), wanted if name.startswith("MLP") else deep, chosen.draws))
        pd.concat(parts).to_csv(chosen.out / "detection.csv", index=False)
    table = pd.concat(parts).pivot_table(index=["network", "deviation"], columns="check", values="tpr")
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
