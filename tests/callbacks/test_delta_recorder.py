"""The recording of real trainings: what it holds, what survives a crash, what is refused."""

import errno
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.cohort import Cohort
from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE, generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.defenses.local_dp import LocalDP
from fedleak.recordings.recording import Recording
from fedleak_recorder import journal
from fedleak_recorder.files import write_once
from tests.callbacks.toy import Toy, rounds
from tests.toys import LastRecord, quiet_trainer, train

pytestmark = pytest.mark.integration


def content(folder: Path) -> dict[str, str]:
    files = sorted((folder / "deltas").rglob("*.safetensors"))
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_views_hold_what_was_sent_and_the_truth_lies_apart(tmp_path: Path) -> None:
    train(tmp_path, rounds=2, more=[last := LastRecord()])
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1]
    record, seen = last.record, 0
    by_pseudonym = {}
    for view in recording.views(victims_per_view=5, rounds=[1]):
        truth = recording.truth(view)
        for victim, client in enumerate(truth["clients"].tolist()):
            seen += 1
            by_pseudonym[int(view.pseudonyms[victim])] = client
            size = int(view.served_mask[victim].sum())
            assert torch.equal(record.cohort.rows[ITEM_EMBEDDING][client, :size], view.served[victim, :size])  # type: ignore[index]
            assert torch.equal(
                record.update.deltas[ITEM_EMBEDDING][client, :size], view.deltas[ITEM_EMBEDDING][victim, :size]
            )
            assert torch.equal(record.update.deltas["mlp.0.bias"][client], view.deltas["mlp.0.bias"][victim])
            assert torch.equal(record.truth["labels"][client, :size], truth["labels"][victim, :size])
    assert seen == 12
    assert set(by_pseudonym) == set(recording.pseudonyms())
    for path in (tmp_path / "deltas" / "rounds").iterdir():
        assert not {key for key in load_file(path) if "label" in key}


class ToyWithTruth(Toy):
    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        return {"pair": torch.stack([cohort.clients, -cohort.clients], 1).float()}


def test_what_is_true_of_the_clients_themselves_is_recorded(tmp_path: Path) -> None:
    quiet_trainer(2, tmp_path, DeltaRecorder()).fit(ToyWithTruth(), rounds())
    recording = Recording(tmp_path / "deltas")
    for view in recording.views():
        truth = recording.truth(view)
        assert torch.equal(truth["clients"].sort().values, torch.tensor([view.round, view.round + 1]))
        assert torch.equal(truth["pair"], torch.stack([truth["clients"], -truth["clients"]], 1).float())


def test_layers_and_storage_type_can_be_chosen(tmp_path: Path) -> None:
    train(tmp_path, rounds=1, recorder=DeltaRecorder(parameters=["item_*"], dtype="float16"))
    view = next(Recording(tmp_path / "deltas").views())
    assert list(view.deltas) == [ITEM_EMBEDDING]
    assert (
        load_file(tmp_path / "deltas/rounds/000000-0000.safetensors")[f"rows/{ITEM_EMBEDDING}"].dtype == torch.float16
    )


def test_resumed_training_and_recording_equal_uninterrupted_ones(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", rounds=3)
    train(tmp_path / "cut", rounds=1)
    checkpoint = tmp_path / "at1.ckpt"
    (tmp_path / "cut" / "last.ckpt").rename(checkpoint)
    # A dead run got further than its checkpoint, and died between a rename and the journal, and inside a line.
    (tmp_path / "cut/deltas/rounds/000001-0000.safetensors").write_bytes(b"half")
    with (tmp_path / "cut/deltas/journal.jsonl").open("a") as journal:
        journal.write('{"file": "rounds/0000')
    resumed = train(tmp_path / "cut", rounds=3, ckpt_path=checkpoint)
    for name, value in whole.public_parameters().items():
        assert torch.equal(value, resumed.public_parameters()[name])
    assert torch.equal(whole.private["user_embedding"], resumed.private["user_embedding"])
    assert content(tmp_path / "whole") == content(tmp_path / "cut")
    assert Recording(tmp_path / "cut" / "deltas").rounds == [0, 1, 2]


def test_a_file_that_is_not_journalled_does_not_count(tmp_path: Path) -> None:
    train(tmp_path, rounds=1)
    (tmp_path / "deltas/rounds/000007-0000.safetensors").write_bytes(b"half")
    assert Recording(tmp_path / "deltas").rounds == [0]


def test_another_run_is_not_mixed_in(tmp_path: Path) -> None:
    train(tmp_path, rounds=1)
    recorded = content(tmp_path)
    with pytest.raises(InputError, match="another training"):
        train(tmp_path, rounds=1, seed=5)
    with pytest.raises(InputError, match="another training"):
        train(tmp_path, rounds=1)  # the same configuration, begun anew
    assert content(tmp_path) == recorded
    assert Recording(tmp_path / "deltas").rounds == [0]


def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    class Second(Callback):
        def on_train_batch_end(self, trainer: Trainer, *rest: object) -> None:
            if trainer.global_step == 1:
                with pytest.raises(InputError, match="process"):
                    train(tmp_path, rounds=2)

    train(tmp_path, rounds=2, more=[Second()])
    recording = Recording(tmp_path / "deltas")
    assert recording.rounds == [0, 1]
    assert recording.closed


def test_what_a_killed_writer_left_half_written_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "deltas/rounds/.000000-0000.safetensors.123.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    train(tmp_path, rounds=1)
    assert not left.exists()


def test_a_journal_that_lost_lines_is_refused_or_said_to_be_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path, rounds=2)
    caplog.set_level("WARNING")
    caplog.clear()
    journal = tmp_path / "deltas/journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert Recording(tmp_path / "deltas").closed
    for lost in range(len(lines) - 1):
        journal.write_text("".join(lines[:lost] + lines[lost + 1 :]))
        with pytest.raises(InputError, match=r"files of rounds|truth"):
            Recording(tmp_path / "deltas")
    assert not caplog.records
    journal.write_text("".join(lines[:2]))
    assert Recording(tmp_path / "deltas").rounds == [0]
    assert "is not closed" in caplog.text
    journal.write_text("")
    with pytest.raises(InputError, match="an empty one"):
        Recording(tmp_path / "deltas")


def test_the_journal_of_another_rank_is_missed(tmp_path: Path) -> None:
    train(tmp_path, rounds=1)
    path = tmp_path / "deltas/manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["config"]["ranks"] == 1
    path.write_text(json.dumps(manifest | {"config": manifest["config"] | {"ranks": 2}}))
    assert not Recording(tmp_path / "deltas").closed


DP = (LocalDP(clip=0.1, epsilon=1, delta=1e-5),)


def test_neither_the_recording_nor_its_seed_gives_pseudonyms_order_or_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings of one seed, each with a key of its own: what is drawn from the key has nothing in common."""
    monkeypatch.delenv(KEY_VARIABLE)
    one, other = (train(tmp_path / name, rounds=1, defenses=DP) for name in ("one", "other"))
    assert one.secret != other.secret
    recordings = [Recording(tmp_path / name / "deltas") for name in ("one", "other")]
    assert not set(recordings[0].pseudonyms()) & set(recordings[1].pseudonyms())
    orders, sent = [], []
    for recording in recordings:
        (view,) = recording.views(victims_per_view=99)
        shard = load_file(recording.directory / "truth/000000-0000.safetensors")
        orders.append(shard["clients"].tolist())
        by_client = recording.truth(view)["clients"].argsort()
        sent.append(view.deltas["mlp.0.weight"][by_client])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(12))
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])
    # Equal updates, so the difference is that of two independent draws: sigma times the root of two.
    assert float((sent[0] - sent[1]).std()) == pytest.approx(2**0.5 * DP[0].noise_scale, rel=0.1)
    for secret in (one.secret, other.secret):
        for path in (tmp_path / "one", tmp_path / "other"):
            written = b"".join(p.read_bytes() for p in (path / "deltas").rglob("*") if p.is_file())
            assert secret not in written
            assert secret.hex().encode() not in written


def test_noise_drawn_again_from_the_public_seed_is_not_the_noise_that_was_sent(tmp_path: Path) -> None:
    module = train(tmp_path, rounds=1, defenses=DP)
    (view,) = Recording(tmp_path / "deltas").views(victims_per_view=99)
    clients = Recording(tmp_path / "deltas").truth(view)["clients"].tolist()
    sigma = DP[0].noise_scale

    def left(seed: int | bytes, *more: int) -> float:
        """Norm of what remains of the sends once the noise is drawn from a seed and subtracted."""
        norms = []
        for victim, client in enumerate(clients):
            generator = generator_for(seed, "defense", *more, 0, client)
            rest = []
            for name in module.public_parameters():
                value = view.deltas[name][victim]
                value = value[view.served_mask[victim]] if name in view.row_parameters else value
                rest.append((value - sigma * torch.randn(value.shape, generator=generator)).flatten())
            norms.append(float(torch.cat(rest).norm()))
        return sum(norms) / len(norms)

    assert left(module.secret, module.seed) < 2 * DP[0].clip  # the test draws as the client does
    assert left(module.seed) > 20 * DP[0].clip


def test_a_resumed_training_draws_from_the_key_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    whole = train(tmp_path, rounds=1, defenses=DP)
    (tmp_path / "last.ckpt").rename(tmp_path / "at1.ckpt")
    resumed = train(tmp_path, rounds=2, defenses=DP, ckpt_path=tmp_path / "at1.ckpt")
    assert resumed.secret == whole.secret
    recording = Recording(tmp_path / "deltas")
    assert recording.pseudonyms(0) == recording.pseudonyms(1)
    assert recording.rounds == [0, 1]


def test_a_full_disk_ends_the_training_and_keeps_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = write_once

    def full(path: Path, data: bytes) -> tuple[int, str]:
        if path.name.startswith("000001"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(journal, "write_once", full)
    with pytest.raises(InputError, match="full"):
        train(tmp_path, rounds=3)
    assert Recording(tmp_path / "deltas").rounds == [0]
    assert len(list(Recording(tmp_path / "deltas").views())) == 1


def test_what_is_damaged_is_refused(tmp_path: Path) -> None:
    train(tmp_path, rounds=1)
    path = tmp_path / "deltas/rounds/000000-0000.safetensors"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InputError, match="checksum"):
        list(Recording(tmp_path / "deltas").views())
    path.write_bytes(good[:-100])
    with pytest.raises(InputError, match="bytes"):
        Recording(tmp_path / "deltas")
    path.unlink()
    with pytest.raises(InputError, match="nothing"):
        Recording(tmp_path / "deltas")


def test_nothing_and_a_journal_that_leads_elsewhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none in"):
        Recording(tmp_path)
    train(tmp_path, rounds=1)
    journal = tmp_path / "deltas/journal.jsonl"
    journal.write_text('{"file": "../../secret/000000-0", "bytes": 1, "sha256": ""}\n')
    with pytest.raises(InputError, match="secret"):
        Recording(tmp_path / "deltas")


def test_checkpoint_waits_for_the_shards_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, done = DeltaRecorder(), []
    monkeypatch.setattr(recorder, "wait", lambda: done.append("own shards"))
    strategy = SimpleNamespace(barrier=lambda _: done.append("barrier"))
    recorder.on_save_checkpoint(SimpleNamespace(strategy=strategy), None, {})  # type: ignore[arg-type]
    assert done == ["own shards", "barrier"]
