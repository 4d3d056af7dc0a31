"""HAM10000: found in every layout, dealt out by lesion, and refused where its metadata are damaged."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedleak.datamodules.images.skin_cancer import SkinCancer
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.training.candidates import CandidateOptions
from tests.datamodules import image_trees as trees
from tests.datamodules.refusals import refused


@pytest.mark.parametrize("form", ["two folders", "beside", "zip", "two folders in a zip"])
def test_skin_cancers_images_are_found_in_every_layout(tmp_path: Path, form: str) -> None:
    folder, rows = tmp_path / "ham10000", trees.skin_cancer_metadata()
    images = trees.skin_cancer_images(rows)
    halves = {f"HAM10000_images_part_{1 + row % 2}/{name}": images[name] for row, name in enumerate(images)}
    {
        "two folders": lambda: trees.write_tree(folder, halves),
        "beside": lambda: trees.write_tree(folder, images),
        "zip": lambda: trees.write_zip(folder / "HAM10000_images.zip", images),
        "two folders in a zip": lambda: trees.write_zip(folder / "archive.zip", halves),
    }[form]()
    (folder / "HAM10000_metadata.csv").write_text(trees.metadata_text(rows))
    data = SkinCancer(root=str(tmp_path), image_size=(9, 12))
    train, test = data.read_train(), data.read_test()
    original = trees.noise(len(rows), 3, 9, 12, seed=5)
    expected = {row: (lesion, kind) for row, (lesion, _, kind) in enumerate(rows)}
    lesions: list[set[str]] = []
    for part in (train, test):
        owned: set[str] = set()
        for image, label in zip(part.images.numpy(), part.labels.tolist(), strict=True):
            # Colour is coded coarsely, so not to a level, but no two images of noise are near.
            row = int(np.abs(original.astype(int) - image).mean(axis=(1, 2, 3)).argmin())
            lesion, kind = expected.pop(row)
            assert data.class_names[label] == kind
            owned.add(lesion)
        lesions.append(owned)
    assert not expected
    assert not lesions[0] & lesions[1]
    assert 0.25 < len(test.labels) / len(rows) < 0.4


def test_no_lesion_is_with_two_clients_or_the_attacker(tmp_path: Path) -> None:
    trees.write_skin_cancer(tmp_path)
    split = ClientSplit(scheme="dirichlet", clients=3, alpha=5.0)
    data = SkinCancer(root=str(tmp_path), image_size=(8, 8), split=split, auxiliary_per_class=3)
    groups = data.read_train().groups
    assert groups is not None
    assert groups.bincount().max() > 1
    holders = [*data.client_images(), data.auxiliary_images().flatten()]
    owned = [set(groups[part].tolist()) for part in holders]
    assert len(set.union(*owned)) == sum(len(own) for own in owned)


def test_no_outsider_is_a_photograph_of_a_members_lesion(tmp_path: Path) -> None:
    trees.write_skin_cancer(tmp_path)
    split = ClientSplit(scheme="composition", composition=[[1 / 7] * 7] * 2, examples_per_client=7)
    data = SkinCancer(root=str(tmp_path), image_size=(8, 8), split=split, auxiliary_per_class=1)
    train, test = data.read_train(), data.read_test()
    assert train.groups is not None
    assert test.groups is not None
    pool = data.candidates(CandidateOptions(per_client=4))
    lesions: dict[bool, set[int]] = {True: set(), False: set()}
    for record, holder in zip(pool.records, pool.holders.tolist(), strict=True):
        for part, groups in ((train, train.groups), (test, test.groups)):
            same = (part.images.float().div(255) == record).flatten(1).all(1)
            lesions[holder >= 0] |= set(groups[same].tolist())
    assert lesions[True]
    assert not lesions[True] & lesions[False]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda text: text.replace("lesion_id", "lesion"), "columns lesion_id, image_id, dx"),
        (lambda text: text.replace(",nv,", ",nw,", 1), "'nw' in line"),
        (lambda text: text + text.splitlines()[5] + "\n", "or one again, in line"),
        (lambda text: text.splitlines()[0] + "\n", "line 1"),
        (lambda text: text[:0], "HAM10000_metadata"),
        (lambda text: text + "HAM_1,ISIC_none,nv,histo,,male,back\n", r"no ISIC_none\.jpg \(1 are missing\)"),
        (lambda text: text.replace("HAM_0000001,", "HAM_0000000,", 1), "one class"),
    ],
    ids=["columns", "kind", "twice", "empty", "nothing", "no file", "lesion of two kinds"],
)
def test_damaged_metadata_are_refused(tmp_path: Path, change: Callable[[str], str], found: str) -> None:
    trees.write_skin_cancer(tmp_path)
    path = tmp_path / "ham10000" / "HAM10000_metadata.csv"
    path.write_text(change(path.read_text()))
    refused(SkinCancer(root=str(tmp_path), image_size=(8, 8)), found)
