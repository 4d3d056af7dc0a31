"""The bar over rounds: total, start after a resume, silence off rank zero."""

from pathlib import Path
from typing import Any

import pytest
from lightning import Trainer

from fedleak.core.progress import report_clients
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.modules.learners.fncf import FNCF
from fedleak.training.lightning.round_progress import RoundProgress
from tests.callbacks.toy import Toy, rounds
from tests.toys import quiet_trainer

pytestmark = pytest.mark.integration


def fit(folder: Path, *, max_steps: int, ckpt_path: Path | None = None, bar: RoundProgress | None = None) -> Trainer:
    trainer = quiet_trainer(max_steps, folder, bar or RoundProgress(), enable_progress_bar=True)
    trainer.fit(Toy(), rounds(0), ckpt_path=ckpt_path)
    return trainer


def test_counts_rounds_against_max_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = fit(tmp_path, max_steps=3)
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "train/local_loss" in shown
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    fit(tmp_path, max_steps=5, ckpt_path=tmp_path / "three.ckpt")
    resumed = capsys.readouterr().err
    assert "3/5" in resumed
    assert "5/5" in resumed


def test_clients_of_a_round_advance_the_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    class Watched(RoundProgress):
        def on_train_batch_end(self, *args: Any) -> None:
            assert self._bar is not None
            seen.append(self._bar.n)
            super().on_train_batch_end(*args)

    trainer = quiet_trainer(2, tmp_path, Watched(), enable_progress_bar=True)
    trainer.fit(
        FNCF(),
        SyntheticRecommender(users=12, items=40, mean_interactions=10, fewest_interactions=4, clients_per_round=12),
    )
    report_clients(5)  # nobody listens after the end
    assert seen == [pytest.approx(0.99), pytest.approx(1.99)]  # all clients are trained, the server's step is not over
    shown = capsys.readouterr().err
    assert "12 of 12 clients" in shown or "2/2" in shown


def test_silent_when_disabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class OtherRank(RoundProgress):
        def enable(self) -> None:
            self.disable()

    bar = OtherRank()
    bar.disable()
    fit(tmp_path, max_steps=2, bar=bar)
    assert "rounds" not in capsys.readouterr().err
