"""Tables on images, from a configuration to a report; at sizes that take seconds."""

from pathlib import Path

import pytest
import torch
import yaml

from datamodules.drawn_features import natural_features
from experiments.base import Choice
from experiments.drawn_features import DrawnFeatures
from experiments.gallery import Gallery, Size, weights_of
from experiments.image_ranking import ImageRanking
from protocol.errors import InputError
from tests.experiments.tables import Result, paper_value, read, reproduce

TABLE = """
kind: image-ranking
experiment: t
metrics: [auc, loss-ratio, ssim, psnr, round-trip]
data: [synthetic-photos]
rankers: [linear, neural-2]
ratios: [1]
epsilons: [inf]
manipulations: {none: [raifle-none, affine-inversion], fgsm: [fgsm], noise: [raifle, affine-inversion]}
attacks: {raifle-none: {max_iter: 5}, fgsm: {max_iter: 5}, raifle: {max_iter: 5}, affine-inversion: {}}
limits: {raifle: 3}
simulations: 8
item_sets: 2
scales:
  small:
    extractors: [resnet18]
    images: 24
    weights: random
    features: 8
    crop: 32
    noise: 1.0
    search: {steps: 8, learning_rate: 0.05}
    batch_size: 8
"""
DRAWN = """
kind: drawn-features
experiment: d
metrics: [auc]
data: [synthetic-features]
extractors: [resnet18]
rankers: [linear]
ratios: [1]
epsilons: [inf, 20]
manipulations: {noise: [affine-inversion]}
attacks: {affine-inversion: {}}
simulations: 4
item_sets: 2
"""


def run(folder: Path, text: str) -> list[Result]:
    assert reproduce(folder, text) == 0
    return read(folder / "out")


def test_a_table_on_images_is_made_and_goes_on(tmp_path: Path) -> None:
    found = {(r.attack, r.metric, r.setting["manipulation"], r.setting.get("ranker")): r for r in run(tmp_path, TABLE)}
    assert found["raifle-none", "auc", "none", "linear"].n == 8
    assert found["raifle", "auc", "noise", "linear"].n == 3
    assert found["affine-inversion", "auc", "noise", "linear"].mean > 0.9
    assert found["raifle", "ssim", "noise", None].n == 24
    assert found["raifle", "loss-ratio", "noise", None].mean > 1.5
    assert found["fgsm", "psnr", "fgsm", None].mean == pytest.approx(20, abs=1.5)  # a tenth of every pixel
    assert found["raifle", "round-trip", "noise", None].mean < 1e-3
    page = (tmp_path / "out/report.html").read_text()
    assert "originals, what is sent" in page
    assert "data:image/png;base64" in page
    images = sorted((tmp_path / "out/images").rglob("*.png"))
    assert len(images) == 48
    made = [path.stat().st_mtime_ns for path in images]
    (tmp_path / "out/results.json").unlink()
    for cell in (tmp_path / "out/cells").rglob("cell.json"):
        cell.unlink()
    again = run(tmp_path, TABLE)
    assert [path.stat().st_mtime_ns for path in images] == made
    assert {r.mean for r in again} == {r.mean for r in found.values()}


def test_fewer_images_than_the_ratio_asks_for_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TABLE.replace("ratios: [1]", "ratios: [4]").replace("[auc, loss-ratio, ssim, psnr, round-trip]", "[auc]")
    assert reproduce(tmp_path, text) == 2
    assert "expected 32 items of 24 images" in capsys.readouterr().err
    text = TABLE.replace("images: 24", "images: 65")
    assert reproduce(tmp_path, text) == 2
    assert "expected 65 images in synthetic-photos; found 64" in capsys.readouterr().err


def test_a_table_on_drawn_features_is_made(tmp_path: Path) -> None:
    results = {r.setting["epsilon"]: r for r in run(tmp_path, DRAWN)}
    assert results["inf"].n == 4
    assert results["inf"].mean > 0.99
    assert results[20].mean < 0.6
    assert (results["inf"].paper, results["inf"].source) == (1.0, "RAIFLE Table VIII")


def test_real_features_are_drawn_as_described() -> None:
    drawn = natural_features(800, 256, generator=torch.Generator().manual_seed(0))
    assert float(drawn.mean()) == pytest.approx(0.92, abs=0.02)
    assert float(drawn.std()) == pytest.approx(0.82, abs=0.03)
    directions = torch.nn.functional.normalize(drawn, dim=1)
    cosines = directions[:400] @ directions[400:].T
    assert float(cosines.mean()) == pytest.approx(0.55, abs=0.02)


def test_items_are_drawn_evenly_of_the_parts(tmp_path: Path) -> None:
    size = Size(extractors=["resnet18"], images=40, weights="random", features=8, crop=32)
    gallery = Gallery(
        data="synthetic-photos", root=None, size=size, name="resnet18", kind="none", seed=0, folder=tmp_path
    )
    drawn = gallery.draw(11, torch.Generator().manual_seed(0))
    part = torch.tensor(gallery.numbers)[drawn] % 2
    assert part.tolist() == [0] * 5 + [1] * 6
    assert len(set(drawn.tolist())) == 11


def test_a_folder_of_weights_gives_each_network_its_file(tmp_path: Path) -> None:
    (tmp_path / "resnet18.pth").touch()
    assert weights_of("torchvision:resnet18", str(tmp_path)) == str(tmp_path / "resnet18.pth")
    assert weights_of("mnasnet1_3", str(tmp_path)) == str(tmp_path / "mnasnet1_3.safetensors")
    assert weights_of("resnet18", "random") == "random"


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
    small = paper_value("raifle", "auc", {**setting, "features": 16, "weights": "random"})
    assert small is not None
    assert small[1] == "RAIFLE Table VIII, trained weights, all features"
    likeness = {"data": "imagenet", "extractor": "resnet18", "manipulation": "noise"}
    assert paper_value("raifle", "psnr", likeness) == (25.8, "RAIFLE Table XII")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("rankers: [linear", "rankers: [cubic", "cubic"),
        ("data: [synthetic-photos]", "data: [mnist]", "mnist"),
        ("ratios: [1]", "ratios: [0]", "ratios and item_sets of at least 1"),
        ("steps: 8", "steps: 0", "steps"),
        ("noise: [raifle,", "noise: [nothing,", "nothing"),
    ],
)
def test_an_impossible_table_is_refused(
    tmp_path: Path, old: str, new: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in TABLE
    assert reproduce(tmp_path, TABLE.replace(old, new)) == 2
    assert found in capsys.readouterr().err


def test_a_scale_that_a_table_does_not_have_is_refused() -> None:
    content = yaml.safe_load(TABLE)
    content.pop("kind")
    with pytest.raises(InputError, match="scales among small"):
        list(ImageRanking.parse(content).cells(Choice(scale="paper")))
    content = yaml.safe_load(DRAWN)
    content.pop("kind")
    assert len(list(DrawnFeatures.parse(content).cells(Choice()))) == 2
