"""Checks of a received model against servers that send a model made to leak, and against honest rounds.

python -m bench.model_checks --root DATA --out runs/model_checks

Honest federated training on MNIST; after rounds 0, 10 and 100, each client has the global model, the one before, its
own last update and 16 images of its own. `detection.csv` has for each network, deviation and check the AUC and the
share of clients whose check exceeds the threshold of split conformal prediction on honest clients at a false-positive
rate of .01, and for all checks together at .05 (`joint`). `frontier.csv` and `frontier.svg` have the recovered share of
a sum of 10 clients against the joint detection, over the strength of a deviation. Checks that read the model alone have
one honest value for each of the three rounds, so that a small excess over it says nothing about other trainings.
"""

import argparse
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from attacks.reconstruction import LinearInversion
from attacks.reconstruction.linear_layer import LinearEstimate, layer_inputs
from client.cohort import Cohort
from client.engine.local_hyperparameters import LocalTraining
from client.image_classifier import ImageClassifierAlgorithm
from client.nets.classifiers import ClassifierOptions, build_classifier
from datamodules.images.mnist import MNIST
from datamodules.partition.client_split import ClientSplit
from defenses.manipulation_checks import threshold
from defenses.model_checks.allow_list import model_hash
from defenses.model_checks.base import ReceivedModel, joint_thresholds, model_checks
from protocol.seeding import generator_for
from protocol.view import RoundView
from server.canary_unit import CanaryUnit
from server.imprint import Imprint
from server.model_manipulation import ModelManipulation, SentModels
from server.quantile_bias import QuantileBias
from server.soliton import Soliton
from server.sparse_imprint import SparseImprint
from server.suppression import Suppression
from server.trap_weights import TrapWeights

Model = dict[str, Tensor]
CLIENTS, IMAGES, SUM, CLASSES, SHAPE = 200, 16, 10, 10, (1, 28, 28)
ROUNDS = (0, 10, 100)
NETWORKS = {
    "MLP of 1,000, N(0, 0.5^2)": ClassifierOptions(name="mlp", hidden=1000, weights="normal"),
    "MLP of 1,000, uniform": ClassifierOptions(name="mlp", hidden=1000),
    "two convolutions": ClassifierOptions(),
}
RECORDS = SUM * IMAGES
DEVIATIONS: dict[str, ModelManipulation] = {
    "imprint": Imprint(),
    "sparse imprint": SparseImprint(),
    "trap weights, s = 0.95": TrapWeights(),
    "trap weights, s = 0.5": TrapWeights(scale=0.5),
    "quantile bias": QuantileBias(records=RECORDS),
    "soliton": Soliton(records=RECORDS),
    "suppression": Suppression(participants=SUM),
    "canary unit": CanaryUnit(),
}
STRENGTHS = (0.05, 0.25, 0.5, 1.0)
SINGLE_RATE, JOINT_RATE = 0.01, 0.05


@dataclass(frozen=True)
class World:
    """Clients, and the global models of an honest training before each round of `ROUNDS` and the one before that."""

    algorithm: ImageClassifierAlgorithm
    cohort: Cohort
    examples: Tensor
    models: Mapping[int, tuple[Model, Model]]

    def inputs(self, client: int) -> tuple[Tensor, Tensor]:
        return self.algorithm.fields({name: value[client] for name, value in self.cohort.examples.items()})

    def own(self, model: Model) -> Tensor:
        """``(M, D)`` what the first layer gets of the server's own examples."""
        return layer_inputs(self.algorithm, model, self.examples, "body.1")


def world(options: ClassifierOptions, root: str) -> World:
    data = MNIST(
        root=root,
        split=ClientSplit(scheme="iid", clients=CLIENTS, examples_per_client=IMAGES),
        auxiliary_per_class=100,
    )
    data.setup("fit")
    algorithm = ImageClassifierAlgorithm(
        network=options,
        image_shape=SHAPE,
        num_classes=CLASSES,
        local=LocalTraining(optimizer="sgd", learning_rate=0.1),
    )
    cohort, kept = data.build_cohort(0, torch.arange(CLIENTS)), dict[int, tuple[Model, Model]]()
    model, before = drawn(options, 0), drawn(options, 1)
    for number in range(max(ROUNDS) + 1):
        if number in ROUNDS:
            kept[number] = model, before
        chosen = torch.randperm(CLIENTS, generator=generator_for(0, "bench clients", number))[:SUM]
        deltas = algorithm.train(model, cohort.select(chosen), seed=number).deltas
        before, model = model, {name: value + deltas[name].mean(0) for name, value in model.items()}
    return World(algorithm, cohort, algorithm.fields(data.auxiliary())[0], kept)


def drawn(options: ClassifierOptions, seed: int) -> Model:
    generator = generator_for(seed, "bench model")
    network = build_classifier(options, image_shape=SHAPE, classes=CLASSES, generator=generator)
    return {name: value.detach().clone() for name, value in network.named_parameters()}


def statistics(own: World, number: int, sent: SentModels) -> pd.DataFrame:
    """Every check of each client that is sent a model in a round: a row per client, a column per check."""
    checks = {name: kind() for name, kind in model_checks().items()}
    honest, before = own.models[number]
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


def manipulated(own: World, number: int, manipulation: ModelManipulation, draws: int) -> Iterator[SentModels]:
    """What the server sends to the first `SUM` clients, then to the next, with a draw of its own for each."""
    model, _ = own.models[number]
    examples = own.own(model) if manipulation.uses_examples else torch.zeros(0, 0)
    for draw in range(draws):
        clients = torch.arange(draw * SUM, (draw + 1) * SUM) % CLIENTS
        yield manipulation.sent(model, examples, clients, generator=generator_for(draw, "bench deviation", number))


def detection(name: str, own: World, deviations: Mapping[str, ModelManipulation], draws: int) -> pd.DataFrame:
    """AUC and TPR of every check, with half of the honest clients for thresholds and half for false positives."""
    honest = [statistics(own, n, SentModels.same(own.models[n][0], torch.arange(CLIENTS))) for n in ROUNDS]
    for frame in honest:
        frame["half"] = torch.randperm(CLIENTS, generator=generator_for(0, "halves")).remainder(2).numpy()
    negatives = pd.concat(honest)
    checks = list(model_checks())
    calibration, rest = (torch.from_numpy(negatives[negatives["half"] == h][checks].to_numpy()) for h in (0, 1))
    single = torch.tensor([threshold(column, SINGLE_RATE) for column in calibration.T], dtype=torch.float64)
    joint = joint_thresholds(calibration, JOINT_RATE)
    found = {"honest": rest}
    for label, manipulation in deviations.items():
        parts = [statistics(own, n, sent) for n in ROUNDS for sent in manipulated(own, n, manipulation, draws)]
        frame = pd.concat(parts)
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


def recovery(own: World, number: int, manipulation: ModelManipulation) -> float:
    """Share of the images of one sum of `SUM` clients that `linear-inversion` recovers exactly."""
    sent = next(manipulated(own, number, manipulation, 1))
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
    model, _ = own.models[number]
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


def frontier(own: World, number: int) -> pd.DataFrame:
    """Recovery and joint detection over the strength of each deviation, in one round.

    By the checks that read what the client has itself: those of the model alone have one honest value in a round.
    """
    checks = [name for name, kind in model_checks().items() if kind.reads_examples]
    honest = statistics(own, number, SentModels.same(own.models[number][0], torch.arange(CLIENTS)))
    joint = joint_thresholds(torch.from_numpy(honest[checks].to_numpy()), len(checks) / CLIENTS + 1e-3)
    rows = []
    for label, manipulation in DEVIATIONS.items():
        if isinstance(manipulation, Suppression | CanaryUnit):
            continue
        for strength in STRENGTHS:
            weaker = dataclasses.replace(manipulation, strength=strength)
            frame = pd.concat([statistics(own, number, sent) for sent in manipulated(own, number, weaker, 1)])
            over = torch.from_numpy(frame[checks].to_numpy()) > joint
            detected = float(over.any(1).double().mean())
            rows.append((label, strength, recovery(own, number, weaker), detected))
            print(rows[-1], flush=True)
    return pd.DataFrame(rows, columns=["deviation", "strength", "recovered", "detected"])


def draw_frontier(frame: pd.DataFrame, path: Path) -> None:
    """Draws the share of detecting clients against the recovered share, a line for each deviation."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, rows in frame.groupby("deviation", sort=False):
        axes.plot(rows["recovered"], rows["detected"], marker="o", label=str(label))
    axes.set(
        xlabel="share of the images of 10 x 16 that are recovered exactly",
        ylabel="share of clients that detect it",
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
    )
    axes.legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    """Runs all networks, then the frontier of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("runs/model_checks"))
    parser.add_argument("--draws", type=int, default=4, help="draws of each deviation for 10 clients each and round")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--deviations", nargs="+", choices=DEVIATIONS, default=list(DEVIATIONS))
    parser.add_argument("--canary", action="store_true", help="only membership by a canary unit")
    parser.add_argument("--frontier", action="store_true", help="only the frontier")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    worlds = {name: functools.partial(world, options, chosen.root) for name, options in NETWORKS.items()}
    if chosen.canary:
        first = next(iter(worlds.values()))()
        print(pd.concat([canary(first, number) for number in ROUNDS], axis=1).to_string())
        return
    if chosen.frontier:
        frame = frontier(next(iter(worlds.values()))(), ROUNDS[1])
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
