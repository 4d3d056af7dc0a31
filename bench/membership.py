"""Membership: time and memory of a joint fit of a round of ten clients by 2,000 candidates."""

import subprocess
import sys
import time

import torch

from bench.measure import Measure
from bench.peak_memory import peak_mib
from fedleak.attacks.record_membership import CandidateFit, FedMIACosine
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.image_classifier import ImageClassifierAlgorithm
from fedleak.client.nets.classifiers import ClassifierOptions, build_classifier
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES

CLIENTS, RECORDS, CANDIDATES_OF_EACH, OUTSIDERS, CLASSES, SHAPE = 10, 500, 100, 1000, 10, (3, 32, 32)
TRAININGS = {
    "one step": LocalTraining(optimizer="sgd", learning_rate=0.05),
    "one epoch": LocalTraining(optimizer="sgd", learning_rate=0.05, batch_size=100),
    "ten epochs": LocalTraining(optimizer="sgd", learning_rate=0.05, batch_size=100, epochs=10),
}


def membership_times() -> list[Measure]:
    """Seconds and peak memory of a round by local training, each in a process of its own, and a published attack's."""
    measures = []
    for name in TRAININGS:
        command = [sys.executable, "-m", "bench.membership", name]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
        ours, published, auc, peak = map(float, output.split())
        job = f"membership after {name}"
        measures.append(Measure(job, "fedmia-2", published))
        measures.append(Measure(job, f"candidate-fit (AUC {auc:.3f})", ours))
        measures.append(Measure(f"memory of {job}", "both", peak, "MiB"))
    return measures


def _view(local: LocalTraining) -> tuple[History, torch.Tensor]:
    """One round on generated images, and which client holds which candidate."""
    generator = generator_for(0, "bench-membership")
    images = torch.rand(CLIENTS * RECORDS + OUTSIDERS, *SHAPE, generator=generator)
    labels = torch.randint(CLASSES, (len(images),), generator=generator)
    held = torch.arange(CLIENTS * RECORDS).reshape(CLIENTS, RECORDS)
    network = ClassifierOptions(channels=8, hidden=64)
    learner = ImageClassifierAlgorithm(network=network, image_shape=SHAPE, num_classes=CLASSES, local=local)
    built = build_classifier(network, image_shape=SHAPE, classes=CLASSES, generator=generator)
    model = {name: value.detach().clone() for name, value in built.named_parameters()}
    pool = torch.cat([held[:, :CANDIDATES_OF_EACH].flatten(), torch.arange(CLIENTS * RECORDS, len(images))])
    view = History(
        round=0,
        pseudonyms=torch.arange(CLIENTS),
        example_counts=torch.full((CLIENTS,), RECORDS),
        deltas=learner.simulate_examples(model, images, labels, held, generator=generator),
        model=model,
        algorithm=learner,
        auxiliary={CANDIDATES: images[pool], CANDIDATE_LABELS: labels[pool]},
        sent_in=torch.zeros(CLIENTS, dtype=torch.int64),
    )
    return view, pool // RECORDS == torch.arange(CLIENTS)[:, None]


def main() -> None:
    """Prints the seconds of ours and of the published attack, the AUC, and the peak memory in MiB."""
    view, member = _view(TRAININGS[sys.argv[1]])
    seconds, found = [], list[Estimate]()
    for attack in (CandidateFit(), FedMIACosine()):
        start = time.perf_counter()
        found.append(attack(view, generator=generator_for(0, "bench-attack")))
        seconds.append(time.perf_counter() - start)
    ours = found[0]
    if not isinstance(ours, RecordMembershipEstimate):
        raise SystemExit("candidate-fit gave no membership")
    auc = ours.score(view, {"member": member, "clients": torch.arange(CLIENTS)}).metrics["auc"]
    print(*seconds, float(auc.mean()), peak_mib())


if __name__ == "__main__":
    main()
