"""Training examples of two clients, their ground truth, and views without an update."""

import torch
from torch import Tensor

from protocol.record_hash import record_hashes
from protocol.view import RoundView

SHAPE = (1, 12, 12)


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
