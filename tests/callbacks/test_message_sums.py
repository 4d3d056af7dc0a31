"""Sums of honest messages: against the messages themselves, and over a crash."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from fedleak.attacks.identifiability import PACSpectral, RandomVector
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.commands import program
from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.recordings.recording import Recording
from tests.probing_toys import clients, learner, train

ROUNDS = 7


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "0" * 64)


def honest(folder: Path, *, noise: float = 0.1, **options: Any) -> Recording:
    data = clients(repeated_selection=None, **options.pop("data", {}))
    recorder = DeltaRecorder(**options)
    train(folder, learner(data, probing=None, noise=noise), data, callbacks=[recorder], rounds=ROUNDS)
    return Recording(folder / "deltas")


def dense(served: Tensor, values: Tensor) -> Tensor:
    """``(I, ...)`` the values of one client, by item."""
    whole = torch.zeros(120, *values.shape[1:])
    whole[served[served >= 0]] = values[served >= 0].float()
    return whole


@pytest.mark.integration
@pytest.mark.parametrize("negatives", ["fixed", "per_round"])
def test_sums_are_those_of_the_messages(tmp_path: Path, negatives: str) -> None:
    data = {"negatives": negatives}
    every = honest(tmp_path / "every", data=data)
    sums = honest(tmp_path / "sums", data=data, sums_at=[1, 3])
    messages: dict[int, list[tuple[int, Tensor, Tensor, Tensor]]] = {}
    for view in every.views(victims_per_view=1):
        labels = every.truth(view)["labels"]
        entry = view.round, view.served_items[0], view.deltas[ITEM_EMBEDDING][0], labels[0]
        messages.setdefault(int(view.pseudonyms), []).append(entry)
    seen = set()
    for view in sums.views(victims_per_view=1):
        assert view.messages is not None
        assert view.updates is not None
        number, served = int(view.messages), view.served_items[0]
        own = messages[int(view.pseudonyms)][:number]
        seen.add((int(view.pseudonyms), number))
        assert view.round == own[-1][0]
        sent = torch.stack([dense(items, deltas) for _, items, deltas, _ in own])
        torch.testing.assert_close(dense(served, view.deltas[ITEM_EMBEDDING][0]), sent.sum(0))
        assert torch.equal(dense(served, view.updates[0]), (sent.abs().sum(2) > 0).float().sum(0))
        for item, label in zip(served.tolist(), sums.truth(view)["labels"][0].tolist(), strict=True):
            _, items, _, labels = [entry for entry in own if item in entry[1]][-1]
            assert float(labels[items == item]) == label
    rates = {p: float((own[0][3] > 0).sum() / (own[0][1] >= 0).sum()) for p, own in messages.items()}
    expected = {(p, n) for p, own in messages.items() for n in (1, 3) if len(own) >= n and rates[p] != 0.5}
    assert seen == expected


class Crash(Callback):
    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 3:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "last.ckpt")
            raise KeyError("crash")


@pytest.mark.integration
def test_sums_go_on_after_a_crash(tmp_path: Path) -> None:
    honest(tmp_path / "whole", sums_at=[2, 4])
    data: SyntheticRecommender = clients(repeated_selection=None)
    crashing: list[Callback] = [DeltaRecorder(sums_at=[2, 4]), Crash()]
    with pytest.raises(KeyError, match="crash"):
        train(tmp_path / "crashed", learner(data, probing=None, noise=0.1), data, callbacks=crashing, rounds=ROUNDS)
    again: dict[str, Any] = {"callbacks": [DeltaRecorder(sums_at=[2, 4])], "ckpt_path": tmp_path / "crashed/last.ckpt"}
    train(tmp_path / "crashed", learner(data, probing=None, noise=0.1), data, rounds=ROUNDS, **again)
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(files) > 4
    for file in files:
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "crashed" / file).read_bytes()


@pytest.mark.integration
@pytest.mark.usefixtures("without_figures")
def test_a_passive_server_learns_from_sums(tmp_path: Path) -> None:
    sums = honest(tmp_path, sums_at=[1, 3], clients=12, noise=0.0)
    assert len(sums.pseudonyms()) == 12
    plan = AuditPlan(recording=sums, attacks=[PACSpectral(), RandomVector()], setting={"data": "toy"}, slow="all")
    found = evaluate_recording(plan, Execution(progress=False)).scores
    errors = found[found["metric"] == "error"].groupby(["attack", "setting.rounds"])["value"]
    assert errors.size().to_dict()["pac-spectral", 1] == 12
    means: dict[Any, float] = errors.mean().to_dict()
    assert means["pac-spectral", 3] < 0.35 < means["chance", 3]
    assert program.main(["audit", str(tmp_path / "deltas"), "--out", str(tmp_path / "out")]) == 0
    assert "setting.rounds" in (tmp_path / "out/scores.csv").read_text()


def test_sums_of_several_processes_or_of_something_else_than_items_are_refused() -> None:
    class Two(Trainer):
        world_size = 2

    with pytest.raises(InputError, match="one process"):
        DeltaRecorder(sums_at=[1])._begin_sums(Two(logger=False, accelerator="cpu"))
