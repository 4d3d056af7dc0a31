"""The round: what the server does with updates, whatever the number of processes, whatever kills it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.commands import train as cli
from fedleak.core.errors import InputError
from fedleak.defenses.base import Defense, Examples, Train, Update
from fedleak.defenses.local_dp import LocalDP
from fedleak.modules.learners.fncf import FNCF
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.recordings.recording import Recording
from fedleak.training import round_parts
from fedleak.training.round_record import RoundRecord
from fedleak.training.server_optimizer import ServerOptimizer, WeightedSum, add_background_noise, weighted_sum
from tests.places import CONFIGS, ROOT
from tests.toys import LastRecord, data, model, quiet_trainer, train


def arguments(folder: Path, *more: str) -> list[str]:
    return [
        *("fit", "--config", str(CONFIGS / "train/fncf_synthetic.yaml")),
        *("--trainer.default_root_dir", str(folder), "--trainer.accelerator", "cpu"),
        *("--data.users", "16", "--data.items", "60", "--data.mean_interactions", "6"),
        *("--data.fewest_interactions", "3", "--data.clients_per_round", "8", "--model.local.epochs", "2"),
        *("--trainer.limit_val_batches", "0", *more),
    ]


def run(folder: Path, *more: str) -> None:
    assert cli.run(arguments(folder, *more)) == 0


def start(folder: Path, *more: str) -> "subprocess.Popen[str]":
    """The same in a process of its own."""
    command = [sys.executable, "train.py", *arguments(folder, *more)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    newest = max((folder / "checkpoints").glob("*.ckpt"), key=os.path.getmtime)
    restored = FNCF.load_from_checkpoint(newest, map_location="cpu")
    return {**restored.public_parameters(), **restored.private}


def sent(folder: Path) -> dict[tuple[int, int], torch.Tensor]:
    """Every client's delta of the item table, by round and pseudonym."""
    found = {}
    for view in Recording(folder / "deltas").views():
        for victim, pseudonym in enumerate(view.pseudonyms.tolist()):
            found[view.round, pseudonym] = view.deltas["item_embedding.weight"][victim][view.served_mask[victim]]
    return found


@pytest.mark.integration
def test_one_round_is_the_weighted_mean_of_the_deltas(tmp_path: Path) -> None:
    source = data()
    before = model(source).public_parameters()
    after = train(tmp_path, rounds=1, more=[last := LastRecord()])
    record = last.record
    shares = record.cohort.counts / record.cohort.counts.sum()
    dense = (shares[:, None, None] * record.update.deltas["mlp.0.weight"]).sum(0)
    torch.testing.assert_close(after.public_parameters()["mlp.0.weight"], before["mlp.0.weight"] + dense)
    table = before["item_embedding.weight"].clone()
    for client in range(len(shares)):
        for position, item in enumerate(record.cohort.rows["item_embedding.weight"][client].tolist()):
            if item >= 0:
                table[item] += shares[client] * record.update.deltas["item_embedding.weight"][client, position]
    torch.testing.assert_close(after.public_parameters()["item_embedding.weight"], table)


@pytest.mark.integration
@pytest.mark.parametrize("read", [False, True])
def test_a_round_in_parts_ends_with_the_same_model(read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def round_of(numbers: int) -> tuple[FNCF, RoundRecord]:
        monkeypatch.setattr(round_parts, "_NUMBERS_AT_ONCE", numbers)
        module = model(source := data(), defenses=(LocalDP(clip=0.1, epsilon=50, delta=1e-5),))
        quiet_trainer(2, tmp_path, last := LastRecord(reads_updates=read)).fit(module, datamodule=source)
        return module, last.record

    (whole, record), (parts, record_of_parts) = round_of(2**26), round_of(3000)
    assert len(record.update.deltas["mlp.0.weight"]) == 12
    assert bool(record_of_parts.update.deltas) is read
    assert len(record_of_parts.cohort) == 12
    for name, value in {**whole.public_parameters(), **whole.private}.items():
        other = {**parts.public_parameters(), **parts.private}[name]
        torch.testing.assert_close(other, value, atol=1e-6, rtol=0)


class TrainsTwice(Defense):
    """Has the clients train again after the training whose update they send, on the opposite labels."""

    def train_locally(self, examples: Examples, mask: torch.Tensor, clients: torch.Tensor, train: Train) -> Update:
        update = train(examples)
        other = train({**examples, "label": 1 - examples["label"]})
        assert not torch.equal(update.private[USER_EMBEDDING], other.private[USER_EMBEDDING])
        return update


@pytest.mark.integration
def test_of_several_trainings_only_what_a_defence_returns_stays(tmp_path: Path) -> None:
    def ended(defenses: tuple[Defense, ...]) -> dict[str, torch.Tensor]:
        module = model(source := data(), defenses=defenses)
        module.secret = b"the same key"
        quiet_trainer(2, tmp_path).fit(module, datamodule=source)
        return {**module.public_parameters(), **module.private}

    plain, twice = ended(()), ended((TrainsTwice(), TrainsTwice()))
    for name, value in plain.items():
        assert torch.equal(twice[name], value)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam"])
def test_server_optimizers(name: str) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = ServerOptimizer(name=name).build([parameter])  # type: ignore[arg-type]
    for _ in range(2):
        parameter.grad = torch.tensor([-1.0])
        optimizer.step()
    # FedAvg 1 + 1; FedAvgM 1 + (1 + 0.9); FedAdam 2 / (1 + tau).
    expected = {"fedavg": 2.0, "fedavgm": 2.9, "fedadam": 2 / 1.001}[name]
    assert parameter.item() == pytest.approx(expected, rel=1e-4)


def test_background_noise_has_the_law_of_the_clients_own_noise() -> None:
    weights_ = torch.tensor([1.0, 2.0, 3.0])
    rows = torch.tensor([[0, -1], [0, 1], [-1, -1]])
    update = Update({"t": torch.zeros(3, 2, 4000)}, {"t": rows}, {"t": 0.5})
    total: WeightedSum = weighted_sum(update, weights_, {"t": torch.zeros(3, 4000)})
    add_background_noise(total, update.background_scale, secret=b"key", seed=0, round_number=0)
    variance = total.deltas["t"].var(dim=1)
    # Row 0 lacks client 2, row 1 lacks clients 0 and 2, row 2 lacks all.
    torch.testing.assert_close(variance, 0.25 * torch.tensor([9.0, 10.0, 14.0]), rtol=0.1, atol=0)


@pytest.mark.integration
def test_two_processes_give_the_model_and_the_deltas_of_one(tmp_path: Path) -> None:
    run(tmp_path / "one", "--trainer.max_steps", "2")
    process = start(tmp_path / "two", "--trainer.max_steps=2", "--trainer.devices=2", "--trainer.strategy=ddp")
    assert (process.communicate(timeout=240)[1], process.returncode)[1] == 0
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-6, rtol=0)
    first, second = sent(tmp_path / "one"), sent(tmp_path / "two")
    assert first.keys() == second.keys()
    for key in first:
        torch.testing.assert_close(first[key], second[key], atol=1e-6, rtol=0)


@pytest.mark.integration
def test_a_killed_run_resumes_to_the_same_model_and_recording(tmp_path: Path) -> None:
    every = ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps", "1")
    run(tmp_path / "whole", "--trainer.max_steps", "24", *every)
    process = start(tmp_path / "cut", "--trainer.max_steps", "24", *every)
    journal = tmp_path / "cut/deltas/journal.jsonl"
    while process.poll() is None and not (journal.exists() and journal.read_text().count("\n") > 6):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    newest = max((tmp_path / "cut/checkpoints").glob("*.ckpt"), key=os.path.getmtime)
    run(tmp_path / "cut", "--trainer.max_steps", "24", *every, "--ckpt_path", str(newest))
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    for name in one:
        assert torch.equal(one[name], two[name])
    first, second = sent(tmp_path / "whole"), sent(tmp_path / "cut")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.integration
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true", "64-true"])
def test_a_precision_in_which_rounds_fail_is_refused(precision: str, tmp_path: Path) -> None:
    trainer = quiet_trainer(1, tmp_path, precision=precision)
    with pytest.raises(InputError, match="precision 32-true"):
        trainer.fit(model(data()), datamodule=data())


@pytest.mark.integration
def test_a_precision_is_refused_in_one_line_before_anything_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments(tmp_path, "--trainer.max_steps", "1", "--trainer.precision", "bf16-mixed")) == 2
    assert [line for line in capsys.readouterr().err.splitlines() if "precision 32-true" in line]
    assert not (tmp_path / "deltas").exists()


@pytest.mark.integration
def test_matrix_factorisation_trains_in_mixed_precision_as_in_full(tmp_path: Path) -> None:
    updates = {}
    for precision in ("32-true", "bf16-mixed"):
        source = data()
        module = FederatedMF(num_items=source.num_items, num_clients=source.num_clients, local=LocalTraining(epochs=2))
        quiet_trainer(1, tmp_path, last := LastRecord(), precision=precision).fit(module, datamodule=source)
        updates[precision] = last.record.update.deltas["item_embedding.weight"]
    full, mixed = updates.values()
    assert float(full.abs().max()) > 1e-3
    torch.testing.assert_close(mixed, full, rtol=1e-3, atol=1e-3 * float(full.abs().max()))
