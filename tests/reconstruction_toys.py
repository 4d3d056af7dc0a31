"""Training examples of a few clients, their ground truth, and views with and without an update."""

import torch
from torch import Tensor

from fedleak.attacks.reconstruction.gradient_matching import GradientMatching, MatchedImages
from fedleak.attacks.reconstruction.likeness import likeness, nearest
from fedleak.client.algorithm import DescentAlgorithm
from fedleak.core.record_hash import record_hashes
from fedleak.core.table_columns import TableColumns
from fedleak.core.view import RoundView
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from tests.attacks.runs import run

SHAPE = (1, 12, 12)
SMALL_TABLE = TableColumns(
    torch.tensor([0, 1, 1]),
    torch.tensor([False, True, True]),
    torch.tensor([0.5, 1, 1], dtype=torch.float64),
    torch.tensor([-1.0, 0, 0], dtype=torch.float64),
    torch.tensor([0, 0, 0]),
    torch.tensor([4, 1, 1]),
)
"""A number of five levels, -1 to 1, and a category of two values."""


def images(count: int, seed: int) -> Tensor:
    return torch.randint(256, (count, *SHAPE), generator=torch.Generator().manual_seed(seed)).float() / 255


def truth_of(records: list[Tensor], labels: list[Tensor], *, keep: bool = False) -> dict[str, Tensor]:
    most = max(map(len, records))
    salts = torch.randint(256, (len(records), 16), dtype=torch.uint8)
    hashes = torch.zeros(len(records), most, 32, dtype=torch.uint8)
    kept = torch.zeros(len(records), most, *records[0].shape[1:], dtype=records[0].dtype)
    classes = torch.full((len(records), most), -1)
    for v, (own, label) in enumerate(zip(records, labels, strict=True)):
        hashes[v, : len(own)] = record_hashes(own, salts[v])
        kept[v, : len(own)], classes[v, : len(own)] = own, label
    found = {"record_hash": hashes, "record_salt": salts, "record_labels": classes}
    return found | ({"records": kept} if keep else {})


def psnr(attack: GradientMatching, view: RoundView, images: Tensor) -> float:
    """Mean PSNR of the matched images."""
    found = run(attack, view, MatchedImages)
    matched = [nearest(*pair) for pair in zip(found.records, images, strict=True)]
    return float(likeness(matched, list(images))["psnr"].mean())


def few_images() -> SyntheticImages:
    """Three clients with two images each."""
    split = ClientSplit(clients=3, examples_per_client=2)
    return SyntheticImages(split=split, train_per_class=20, auxiliary_per_class=4, noise=0.2, seed=1)


def view_of_images(algorithm: DescentAlgorithm, model: dict[str, Tensor]) -> tuple[RoundView, Tensor]:
    """What a server sees of the clients of `few_images`, and the images ``(3, 2, *SHAPE)``."""
    data = few_images()
    cohort, known = data.cohort(0), data.auxiliary()
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(3),
        example_counts=cohort.counts,
        deltas=algorithm.train(model, cohort, seed=0).deltas,
        model=model,
        algorithm=algorithm,
        auxiliary={"images": known["image"], "labels": known["label"]},
    )
    return view, cohort.examples["image"]


def view_of(counts: list[int], **more: object) -> RoundView:
    zeros = torch.zeros(len(counts), 1)
    return RoundView(
        round=0,
        pseudonyms=torch.arange(len(counts)),
        example_counts=torch.tensor(counts),
        deltas={"weight": zeros},
        model={"weight": zeros[0]},
        **more,  # type: ignore[arg-type]
    )


TRUE = [images(3, 0), images(2, 1)]
LABELS = [torch.tensor([0, 1, 1]), torch.tensor([1, 0])]
VIEW = view_of([3, 2])
