"""Candidates: some of each client's records, and as many of each class that nobody holds."""

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.training.candidates import CandidateOptions, draw_numbers

SPLIT = ClientSplit(scheme="dirichlet", clients=4, examples_per_client=30, alpha=0.5)


def source(**arguments: object) -> SyntheticImages:
    return SyntheticImages(split=SPLIT, train_per_class=80, auxiliary_per_class=2, **arguments)  # type: ignore[arg-type]


def test_members_are_the_clients_and_outsiders_nobodys() -> None:
    data = source()
    pool = data.candidates(CandidateOptions(per_client=10))
    assert len(pool.labels) == 80
    member = pool.member(torch.arange(4))
    assert member.sum(1).tolist() == [10] * 4
    held = pool.labels[member.any(0)].bincount(minlength=10)
    assert torch.equal(held, pool.labels[pool.holders < 0].bincount(minlength=10))
    own = {image.numpy().tobytes() for client in range(4) for image in data.cohort(0).examples["image"][client]}
    inside = torch.tensor([record.numpy().tobytes() in own for record in pool.records])
    assert torch.equal(inside, pool.holders >= 0)
    for client in range(4):
        mine = {image.numpy().tobytes() for image in data.cohort(0).examples["image"][client]}
        assert all(record.numpy().tobytes() in mine for record in pool.records[member[client]])


def test_the_draw_is_repeated_by_its_seed() -> None:
    one, two = (source().candidates(CandidateOptions(per_client=5)) for _ in range(2))
    assert torch.equal(one.records, two.records)
    assert not torch.equal(one.records, source(seed=1).candidates(CandidateOptions(per_client=5)).records)


def test_a_number_of_outsiders_keeps_the_proportions() -> None:
    pool = source().candidates(CandidateOptions(per_client=10, outsiders=20))
    held, others = (pool.labels[kind].bincount(minlength=10) for kind in (pool.holders >= 0, pool.holders < 0))
    assert int(others.sum()) == 20
    assert ((others * 2 - held).abs() < 2).all()
    assert not int((source().candidates(CandidateOptions(per_client=3, outsiders=0)).holders < 0).sum())


def test_too_few_records_are_answered_with_what_to_change() -> None:
    with pytest.raises(InputError, match=r"candidates\.per_client"):
        source().candidates(CandidateOptions(per_client=31))
    labels = torch.zeros(10, dtype=torch.int64)
    with pytest.raises(InputError, match="cat"):
        draw_numbers(
            CandidateOptions(per_client=3),
            [torch.arange(4), torch.arange(4, 8)],
            torch.arange(8, 10),
            labels,
            classes=["cat"],
            seed=0,
        )
