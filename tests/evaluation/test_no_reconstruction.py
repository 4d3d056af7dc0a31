"""Images that identify nobody's are no reconstruction, whatever their likeness to grey."""

import pandas as pd
import pytest

from evaluation.no_reconstruction import no_reconstructions


def results(psnr: float, low: float, baseline: float) -> pd.DataFrame:
    rows = [
        ("attack", "attack", "psnr", psnr, psnr),
        ("attack", "attack", "identified", 0.05, low),
        ("attack", "attack", "identified-by-chance", 0.01, 0.01),
        ("mean", "baseline", "psnr", baseline, baseline),
        ("mean", "baseline", "identified", 0.01, 0.0),
        ("mean", "baseline", "identified-by-chance", 0.01, 0.01),
    ]
    table = pd.DataFrame(rows, columns=["attack", "role", "metric", "mean", "low"])
    return table.assign(question="reconstruction", setting_data="cifar10")


@pytest.mark.parametrize(
    ("psnr", "low", "baseline", "found"),
    [(11.0, 0.0, 10.0, 1), (12.5, 0.01, 12.7, 1), (15.0, 0.0, 12.7, 0), (11.0, 0.02, 10.0, 0)],
)
def test_no_reconstruction_is_low_likeness_and_chance(psnr: float, low: float, baseline: float, found: int) -> None:
    said = no_reconstructions(results(psnr, low, baseline))
    assert len(said) == found
    if said:
        row, sentence, numbers = said[0]
        assert row["attack"] == "attack"
        assert (
            sentence
            == f"no reconstruction: PSNR {psnr:.1f} dB, and its images identify 5.0% of the true ones, 1.0% by chance"
        )
        assert numbers == {"psnr": psnr, "identified": 0.05, "chance": 0.01}
