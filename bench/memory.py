"""Memory of attacks on a recording, which must not grow with the number of rounds."""

import subprocess
import sys
import tempfile
from pathlib import Path

from lightning import Trainer

from bench.measure import Measure
from bench.peak_memory import peak_mib
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.modules.learners.fncf import FNCF
from fedleak.recordings.recording import Recording

CLIENTS = 20


def memory_while_attacking(rounds: tuple[int, ...] = (50, 500)) -> list[Measure]:
    """Peak resident memory of a process that attacks every client of every round, by number of rounds."""
    measures = []
    for number in rounds:
        with tempfile.TemporaryDirectory() as folder:
            _record(number, Path(folder))
            command = [sys.executable, "-m", "bench.memory", folder]
            peak = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
        measures.append(Measure("memory while attacking", f"{number} rounds", float(peak), "MiB"))
    return measures


def _record(rounds: int, folder: Path) -> None:
    source = SyntheticRecommender(clients_per_round=CLIENTS)
    local = LocalTraining(optimizer="adam", learning_rate=0.001, epochs=1)
    Trainer(
        max_steps=rounds,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        callbacks=[DeltaRecorder(directory=str(folder / "deltas"))],
    ).fit(FNCF(num_items=source.num_items, num_clients=source.num_clients, local=local), datamodule=source)


def _attack(folder: Path) -> float:
    plan = AuditPlan(recording=Recording(folder / "deltas"), attacks=[Direction()], setting={})
    evaluate_recording(plan, Execution(progress=False))
    return peak_mib()


if __name__ == "__main__":
    print(_attack(Path(sys.argv[1])))
