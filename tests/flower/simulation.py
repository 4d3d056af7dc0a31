"""A Flower simulation of a Decaf configuration: ``python -m tests.flower CONFIG OUT [ROOT]``.

Flower's own clients, server and FedAvg, plain PyTorch in the clients; only the data, the network's classes, the first
global model and the order of the mini-batches are taken from the configuration, so that the two trainings can be told
to be one. The server records what it receives.
"""

import functools
import os
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
import yaml
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.datamodules.images.base import ClassificationDataModule
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.images.mnist import MNIST
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.modules.learners.image_classifier import FederatedClassifier
from fedleak_recorder import Recorder
from fedleak_recorder.flower import RecordingStrategy

KINDS: dict[str, type[ClassificationDataModule]] = {"Digits": Digits, "MNIST": MNIST}


@functools.cache
def read(config: Path, root: str | None) -> tuple[ClassificationDataModule, FederatedClassifier, int]:
    """The configuration's data, its first global model and its number of rounds."""
    content = yaml.safe_load(config.read_text())
    options = content["data"]["init_args"]
    source = KINDS[content["data"]["class_path"]](**{**options, "split": ClientSplit(**options["split"]), "root": root})
    model = content["model"]["init_args"]
    module = FederatedClassifier(
        num_classes=source.num_classes,
        image_shape=source.image_shape,
        network=ClassifierOptions(**model.get("network", {})),
        local=LocalTraining(**model["local"]),
        seed=source.seed,
    )
    return source, module, content["trainer"]["max_steps"]


def client_app(config: Path, root: str | None) -> ClientApp:
    """Clients as a stranger writes them."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        source, module, _ = read(config, root)
        number = int(context.node_config["partition-id"])
        server_round = int(message.content["config"]["server-round"])
        cohort = source.build_cohort(server_round - 1, torch.tensor([number]))
        images, labels = cohort.examples["image"][0], cohort.examples["label"][0]
        network = build_classifier(
            module.options, image_shape=source.image_shape, classes=source.num_classes, generator=torch.Generator()
        )
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(network.parameters(), lr=module.local.learning_rate)
        size, epochs = module.local.batch_size, module.local.epochs
        assert size is not None
        for batch in batch_schedule(cohort, LocalTraining(batch_size=size, epochs=epochs), seed=source.seed)[0]:
            kept = batch[batch >= 0]
            optimizer.zero_grad()
            cross_entropy(network(images[kept]), labels[kept]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        told: dict[str, Any] = {"num-examples": len(labels), "partition": number}
        told["class_counts"] = labels.bincount(minlength=source.num_classes).tolist()
        content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord(told)})
        return Message(content=content, reply_to=message)

    return app


def recorded(config: Path, root: str | None, out: Path) -> tuple[RecordingStrategy, ArrayRecord]:
    """Flower's FedAvg, recorded, and the first global model."""
    source, module, _ = read(config, root)
    first = module.public_parameters()
    known = source.auxiliary()
    recorder = Recorder(
        out,
        parameters=first,
        data=source.fingerprint,
        learner=module.learner_description(),
        auxiliary={"images": known["image"], "labels": known["label"]},
    )
    everyone = source.num_clients
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=everyone, min_available_nodes=everyone)
    truth = ("class_counts", "partition")
    return RecordingStrategy(strategy, recorder, truth=truth), ArrayRecord(first)


def server_app(config: Path, root: str | None, out: Path) -> ServerApp:
    """The server as a stranger writes it."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy, first = recorded(config, root, out)
        strategy.start(grid=grid, initial_arrays=first, num_rounds=read(config, root)[2])

    return app


def simulate(config: Path, out: Path, root: str | None = None) -> None:
    """Runs the simulation on two cores."""
    source, _, _ = read(config, root)
    run_simulation(
        server_app=server_app(config, root, out),
        client_app=client_app(config, root),
        num_supernodes=source.num_clients,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": 2, "include_dashboard": False},
        },
    )
