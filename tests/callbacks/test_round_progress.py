"""The bar over rounds: total, start after a resume, silence off rank zero."""

from pathlib import Path

import pytest
from lightning import Trainer

from callbacks.round_progress import RoundProgress
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


def test_silent_when_disabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class OtherRank(RoundProgress):
        def enable(self) -> None:
            self.disable()

    bar = OtherRank()
    bar.disable()
    fit(tmp_path, max_steps=2, bar=bar)
    assert "rounds" not in capsys.readouterr().err
