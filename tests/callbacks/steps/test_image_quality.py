"""A table on images, from its file to a report: the images that are made once, their quality, the attacks."""

from pathlib import Path

import pytest

from fedleak.core.cache import CACHE_VARIABLE
from tests.places import CONFIGS
from tests.tables.tables import Result, paper_value, read, reproduce

TABLE = f"""
train: {CONFIGS}/train/image_ranker_synthetic.yaml
metrics: [auc, loss-ratio, ssim, psnr, round-trip]
set:
  data.images: 24
  data.users: 8
  data.item_sets: 2
  model.extractor: {{features: 8, crop: 32}}
  model.manipulation.search: {{steps: 8, learning_rate: 0.05}}
  model.batch_size: 8
axes:
  data: [synthetic-photos]
  manipulation:
    none: {{model.manipulation: null}}
    fgsm: {{model.manipulation: FastGradientSign}}
    noise: {{}}
  ranker: {{linear: {{}}, neural-2: {{model.hidden: 2}}}}
attacks: {{images/raifle: {{max_iter: 5, victims: 3}}, affine-inversion: {{}}}}
also:
  - axes: {{ranker: null, manipulation: {{fgsm: {{model.manipulation: FastGradientSign}}, noise: {{}}}}}}
    attacks: {{}}
    after: [image-quality]
"""
DRAWN = f"""
train: {CONFIGS}/train/image_ranker_drawn.yaml
metrics: [auc]
set: {{data.users: 4, data.item_sets: 2}}
setting: {{extractor: resnet18, features: 512, ranker: linear, ratio: 1, manipulation: noise}}
axes:
  data: [synthetic-features]
  epsilon:
    inf: {{}}
    20: {{model.defenses: [{{class_path: LocalDP, init_args: {{clip: 0.025, epsilon: $, delta: 1.0e-8}}}}]}}
attacks: {{affine-inversion: {{}}}}
"""


@pytest.fixture(autouse=True)
def _images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def run(folder: Path, text: str, *, page: bool = False) -> list[Result]:
    assert reproduce(folder, text, page=page) == 0
    return read(folder / "out")


@pytest.mark.integration
def test_a_table_on_images_is_made_and_goes_on(tmp_path: Path) -> None:
    results = run(tmp_path, TABLE, page=True)
    found = {(r.attack, r.metric, r.setting["manipulation"], r.setting.get("ranker")): r for r in results}
    assert found["affine-inversion", "auc", "none", "linear"].n == 8
    assert found["raifle", "auc", "noise", "linear"].n == 3
    assert ("fgsm", "auc", "fgsm", "neural-2") in found
    assert ("raifle-none", "auc", "none", "neural-2") in found
    assert found["affine-inversion", "auc", "noise", "linear"].mean > 0.9
    assert found["raifle", "ssim", "noise", None].n == 24
    assert found["raifle", "loss-ratio", "noise", None].mean > 1.5
    assert found["fgsm", "psnr", "fgsm", None].mean == pytest.approx(20, abs=1.5)  # a tenth of every pixel
    assert found["raifle", "round-trip", "noise", None].mean < 1e-3
    page = (tmp_path / "out/report.html").read_text()
    assert "original images, images sent" in page
    assert "data:image/png;base64" in page
    images = sorted((tmp_path / "cache/images").rglob("*.png"))
    assert len(images) == 48
    made = [path.stat().st_mtime_ns for path in images]
    (tmp_path / "out/results.json").unlink()
    for mark in [*(tmp_path / "out/cells").glob("*.json"), *(tmp_path / "out").rglob("training.json")]:
        mark.unlink()
    again = run(tmp_path, TABLE)
    assert [path.stat().st_mtime_ns for path in images] == made
    assert {r.mean for r in again} == {r.mean for r in found.values()}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("data.images: 24", "data.images: 6", "expected 8 items of 6 images"),
        ("data.images: 24", "data.images: 65", "expected 65 images in synthetic-photos; found 64"),
        (
            "data: [synthetic-photos]",
            "data: [synthetic-features]",
            "a data set for table (cifar10, imagenet, synthetic-photos)",
        ),
        (
            "fgsm: {model.manipulation: FastGradientSign}, ",
            "none: {model.manipulation: null}, ",
            "on manipulated images",
        ),
    ],
)
def test_a_table_that_cannot_be_is_one_message(
    tmp_path: Path, old: str, new: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in TABLE
    assert reproduce(tmp_path, TABLE.replace(old, new)) == 2
    assert found in capsys.readouterr().err


@pytest.mark.integration
def test_a_table_on_drawn_features_is_made(tmp_path: Path) -> None:
    results = {r.setting["epsilon"]: r for r in run(tmp_path, DRAWN)}
    assert results["inf"].n == 4
    assert results["inf"].mean > 0.99
    assert results[20].mean < 0.6
    assert (results["inf"].paper, results["inf"].source) == (None, None)  # drawn features are not those of images


def test_the_papers_numbers_are_found() -> None:
    setting = {
        "data": "imagenet",
        "extractor": "densenet121",
        "ranker": "neural-4",
        "ratio": 2,
        "epsilon": "inf",
        "manipulation": "noise",
    }
    assert paper_value("affine-inversion", "auc", setting) == (0.935, "RAIFLE Table VIII")
    assert paper_value("raifle", "auc", {**setting, "epsilon": 500}) == (0.545, "RAIFLE Table XV")
    other = paper_value("raifle", "auc", {**setting, "data": "cifar10"})
    assert other == (0.935, "RAIFLE Table VIII, images and weights of ImageNet")
    assert paper_value("raifle", "auc", {**setting, "data": "synthetic-features"}) is None
    assert paper_value("raifle", "auc", {**setting, "features": 16}) is None
    likeness = {"data": "imagenet", "extractor": "resnet18", "manipulation": "noise"}
    assert paper_value("raifle", "psnr", likeness) == (25.8, "RAIFLE Table XII")
