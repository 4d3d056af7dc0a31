"""What the guard adds to a client's round, honest rounds that it refuses, and models made to leak that it refuses.

python -m bench.guard --rounds 1000
python -m bench.guard --received DATA

The second trains on MNIST as `bench.model_checks` does. Each site calibrates by simulated trainings on its own 16
images, takes part in every honest round, and gets each deviation before rounds 0, 10 and 100.
"""

import argparse
import copy
import dataclasses
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from bench.measure import interleaved
from bench.model_checks import CLASSES, CLIENTS, DATA, DEVIATIONS, NETWORKS, ROUNDS, SUM, World, manipulated, world
from bench.peers.networks import ImageNetwork
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.seeding import generator_for
from fedleak.guard_checks.received_model import StatisticsOfModel
from fedleak.guard_checks.simulated_rounds import simulated_rounds
from fedleak_guard import Guard, Message, RefusedError, read_policy
from fedleak_guard.checks.received_rows import ReceivedRows
from fedleak_guard.declared_checks import SimulatedTrainings
from fedleak_guard.earlier_round import keep_round
from fedleak_guard.message import tensors_hash
from fedleak_guard.thresholds import calibrated, tensors_of, write_thresholds

SIMULATION = SimulatedTrainings(
    trainings=4, rounds=30, clients=10, examples=64, learning_rate=0.1, epochs=1, batch_size=None
)
"""The defaults of `fedleak-guard calibrate --simulate`."""

POLICY = """\
format: 1
evidence: {folder}/{name}
tensors: [{tensors}]
update: {{max_norm: 1000, min_examples: 10, min_changed: 0.01}}
metrics: {{names: [loss]}}
budget: {{site_rounds: 1000000}}
"""


def trained(network: ImageNetwork, images: torch.Tensor, labels: torch.Tensor, batch: int) -> ImageNetwork:
    """A copy of the network after one epoch of SGD."""
    own = copy.deepcopy(network)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
    for chosen in torch.randperm(len(labels)).split(batch):  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        functional.cross_entropy(own(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return own


def message_of(network: ImageNetwork, own: ImageNetwork, number: int, **more: Any) -> Message:
    """The message of a client of this round."""
    received = dict(network.state_dict())
    sent = dict(own.state_dict())
    given = {"sent": sent, "holds": "models", "received": received, "metrics": {"loss": 0.5}, "examples": 600, **more}
    return Message(job="bench", round=number, **given)


def main() -> None:
    """Prints seconds of each piece, shares of the training, and the refusals of honest rounds by reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--received", metavar="DATA", help="only models made to leak; the folder of the data sets")
    parser.add_argument("--sites", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.received:
        for name, chosen in NETWORKS.items():
            received_models(name, chosen, options.received, options.sites)
        return
    torch.manual_seed(0)
    network = ImageNetwork(1, 28, 10)
    images, labels = torch.rand(600, 1, 28, 28), torch.randint(10, (600,))
    own = trained(network, images[:50], labels[:50], 10)
    with tempfile.TemporaryDirectory() as folder:
        guards = {}
        for name in ("alone", "with fedleak", "rounds"):
            path = Path(folder) / f"{name}.yaml"
            # Without the received model, the policy has to know the names.
            names = list(network.state_dict()) if name == "alone" else ["*"]
            rules = ", ".join(f'{{name: "{one}", dtype: float32}}' for one in names)
            path.write_text(POLICY.format(folder=folder, name=name, tensors=rules))
            guards[name] = Guard(path)
        whole = {"records": images, "labels": labels}
        tensors = {name: value.numpy() for name, value in own.state_dict().items()}
        entry = (Path(folder) / "entry").open("ab", buffering=0)
        pieces = {
            "training, 600 images": lambda: trained(network, images, labels, 10),
            "training, 50 images": lambda: trained(network, images[:50], labels[:50], 10),
            "all checks": lambda: guards["with fedleak"].release(message_of(network, own, 0, **whole)),
            "own numbers alone": lambda: guards["alone"].release(
                message_of(network, own, 0, received=None, holds="deltas")
            ),
            "SHA-256 of the message": lambda: tensors_hash(tensors),
            "an entry on the disk": lambda: _on_the_disk(entry.fileno()),
        }
        seconds = interleaved(pieces, options.repeats)
        for name, value in seconds.items():
            shares = [value / seconds[other] for other in seconds if other.startswith("training")]
            print(f"{name:24}{value:9.4f} s{shares[0]:9.2%}{shares[1]:9.2%} of each training")
        print(_honest(guards["rounds"], network, images, labels, options.rounds))


def _on_the_disk(descriptor: int) -> None:
    """Appends as much as an entry of the log, and waits until the disk has it."""
    os.write(descriptor, b"x" * 1200)
    os.fsync(descriptor)


def _honest(guard: Guard, network: ImageNetwork, images: torch.Tensor, labels: torch.Tensor, rounds: int) -> str:
    """Refusals of rounds of clients with 16 images each, at models that get better."""
    refused: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(rounds):
        chosen = torch.randint(len(labels), (16,))
        own = trained(network, images[chosen], labels[chosen], 16)
        try:
            guard.release(message_of(network, own, number, examples=16))
        except RefusedError as error:
            refused[error.reasons[0][:60]] += 1
        if number % 10 == 9:
            network = own
    reasons = "; ".join(f"{count} {reason}" for reason, count in refused.items()) or "none"
    return f"{rounds} honest rounds in {time.perf_counter() - start:.0f} s, refused: {reasons}"


def received_models(name: str, options: ClassifierOptions, root: str, sites: int) -> None:
    """Prints the honest rounds, and those with each deviation, that the guards of sites refuse at the defaults."""
    own = world(options, "mnist", root, trainings=1)
    shown = dict(DEVIATIONS) if name.startswith("MLP") else {"suppression": DEVIATIONS["suppression"]}
    refused, counted = Counter[str](), Counter[str]()
    for site in range(1, sites + 1):
        seeds = itertools.count(10**6 * site)
        with tempfile.TemporaryDirectory() as folder:
            guard, given = _calibrated(own, options, Path(folder), site, seeds)
            model, _ = own.models[0][0]
            for number in range(max(ROUNDS) + 1):
                if number in ROUNDS:
                    for label, one in shown.items():
                        sent = manipulated(own, 0, number, one, 0)
                        bad = {name: value[int(sent.index[site])] for name, value in sent.models.items()}
                        found = _found(guard, Message(job="job", round=number, sent=bad, received=bad, **given))
                        counted[label] += 1
                        refused[label] += found
                others = torch.randperm(CLIENTS, generator=generator_for(site, "bench clients", number))[: SUM - 1]
                clients = torch.cat([torch.tensor([site]), others])
                deltas = own.algorithm.train(model, own.cohort.select(clients), seed=number).deltas
                sent_delta = {name: value[0] for name, value in deltas.items()}
                message = Message(job="job", round=number, sent=sent_delta, received=model, **given)
                counted["honest"] += 1
                if _found(guard, message):
                    refused["honest"] += 1
                else:  # as the guard does after a release
                    keep_round(message, read_policy(guard.policy))
                model = {name: value + deltas[name].mean(0) for name, value in model.items()}
    for label, count in counted.items():
        print(f"{name:28}{label:28}{refused[label]:6d} of {count} refused", flush=True)


def _calibrated(
    own: World, options: ClassifierOptions, folder: Path, site: int, seeds: Iterator[int]
) -> tuple[Guard, dict[str, Any]]:
    """A site's guard with thresholds of simulated trainings, and what the site knows of each message."""

    def network() -> torch.nn.Module:
        generator = generator_for(next(seeds), "bench site")
        return build_classifier(options, image_shape=DATA["mnist"][1], classes=CLASSES, generator=generator)

    inputs, labels = own.inputs(site)
    simulated = dataclasses.replace(SIMULATION, examples=len(inputs), seed=site)
    values = list(simulated_rounds(network, inputs.numpy(), labels.numpy(), simulated))
    tensors, source = tensors_of(dict(network().state_dict())), f"{len(values)} simulated rounds"
    made = calibrated(values, false_positives=0.05, source=source, tensors=tensors, records=len(inputs))
    write_thresholds(folder / "thresholds.json", made)
    path = folder / "policy.yaml"
    path.write_text(
        f"format: 1\nevidence: {folder}\ntensors: [{{name: '*', dtype: float32}}]\nfindings: {{own-records: log}}\n"
        f"received: {{thresholds: {folder}/thresholds.json}}\nrequired: [received-model, received-rows]\n"
    )
    return Guard(path), {"records": inputs, "labels": labels, "network": network}


def _found(guard: Guard, message: Message) -> bool:
    """Whether a check of the received model refuses it."""
    policy, first = read_policy(guard.policy), message.round == 0
    found = [kind().measure(message, policy, first=first) for kind in (StatisticsOfModel, ReceivedRows)]
    for one in found:
        if one is not None and one.found and message.round not in ROUNDS:
            print(message.round, one.sentence, flush=True)
    return any(one is not None and one.found for one in found)


if __name__ == "__main__":
    main()
