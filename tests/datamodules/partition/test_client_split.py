"""Every deal is disjoint, whole groups or parts of one stay on one side, and what cannot be dealt is refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.datamodules.partition.client_split import (
    ClientSplit,
    deal_by_counts,
    deal_dirichlet,
    deal_evenly,
    deal_shards,
    dirichlet_table,
    split_clients,
)
from fedleak.datamodules.partition.pool import Pool, hold_back, shuffled_pool, split_off
from fedleak.training.class_proportions import composition_counts, decaf_composition, decaf_compositions

NAMES = ("ant", "bee", "cow", "dog")


def labels_and_groups(*, largest_group: int, groups: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Examples in random order; every class has as many groups, of random sizes."""
    generator = generator_for(seed, "test-groups")
    sizes = torch.randint(1, largest_group + 1, (groups,), generator=generator)
    group = torch.arange(groups).repeat_interleave(sizes)
    group = group[torch.randperm(len(group), generator=generator)]
    return group % len(NAMES), group


def pool(*, largest_group: int = 1, groups: int = 200, seed: int = 0) -> Pool:
    labels, members = labels_and_groups(largest_group=largest_group, groups=groups)
    return shuffled_pool(labels, class_names=NAMES, generator=generator_for(seed, "test-pool"), groups=members)


def seeded(purpose: str = "test-deal") -> torch.Generator:
    return generator_for(0, purpose)


TABLE = [[0.25, 0.25, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]]
SPLITS: dict[str, ClientSplit] = {
    "iid": ClientSplit(clients=4),
    "iid, a number each": ClientSplit(clients=4, examples_per_client=20),
    "shards": ClientSplit(scheme="shards", clients=4),
    "dirichlet": ClientSplit(scheme="dirichlet", clients=3, alpha=5.0),
    "dirichlet, numbers": ClientSplit(scheme="dirichlet", clients=3, alpha=5.0, examples_per_client=[10, 20, 30]),
    "composition": ClientSplit(scheme="composition", composition=TABLE, examples_per_client=8),
}


def deal(name: str, source: Pool) -> list[Tensor]:
    return split_clients(source, SPLITS[name], seed=0, data="MNIST")


@pytest.mark.parametrize("largest_group", [1, 5])
@pytest.mark.parametrize("name", SPLITS)
def test_no_example_and_no_group_is_with_two_clients(name: str, largest_group: int) -> None:
    labels, groups = labels_and_groups(largest_group=largest_group)
    parts = deal(name, pool(largest_group=largest_group))
    together = torch.cat(parts).tolist()
    assert len(set(together)) == len(together)
    owned = [set(groups[part].tolist()) for part in parts]
    assert len(set.union(*owned)) == sum(len(own) for own in owned)
    sizes = SPLITS[name].examples_per_client
    if sizes is None:
        assert sorted(together) == list(range(len(labels)))
        assert len(parts) == SPLITS[name].clients
    else:
        assert [len(part) for part in parts] == (sizes if isinstance(sizes, list) else [sizes] * len(parts))


@pytest.mark.parametrize("name", SPLITS)
def test_a_deal_is_a_function_of_its_pool(name: str) -> None:
    one, again, other = (deal(name, pool(seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("largest_group", [1, 5])
def test_counts_are_met_exactly_in_an_order_that_says_nothing(largest_group: int) -> None:
    labels, _ = labels_and_groups(largest_group=largest_group)
    counts = torch.tensor([[9, 0, 3, 1], [2, 8, 0, 4], [0, 0, 0, 7]])
    parts = deal_by_counts(pool(largest_group=largest_group), counts)
    assert torch.equal(torch.stack([labels[part].bincount(minlength=4) for part in parts]), counts)
    assert labels[parts[0]].diff().lt(0).any()


def test_an_even_deal_has_equal_sizes_and_the_proportions_of_the_whole() -> None:
    labels, _ = labels_and_groups(largest_group=1)
    assert {len(part) for part in deal_evenly(pool(), 7)} == {28, 29}
    assert {len(part) for part in deal_evenly(pool(largest_group=5), 7, 13)} == {13}
    big = shuffled_pool(labels.repeat(50), class_names=NAMES, generator=seeded())
    shares = torch.stack([labels.repeat(50)[part].bincount(minlength=4) / len(part) for part in deal_evenly(big, 5)])
    # 2,000 of each client: a standard error of .01.
    assert (shares - 0.25).abs().max() < 0.05


def test_shards_give_few_classes() -> None:
    labels, _ = labels_and_groups(largest_group=1)
    # 8 shards of 25: two of each class of 50.
    parts = deal_shards(pool(), 4, 2, generator=seeded())
    assert {len(part) for part in parts} == {50}
    assert all(count in (0, 25, 50) for part in parts for count in labels[part].bincount(minlength=4).tolist())


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_dirichlet_shares_have_their_law(alpha: float) -> None:
    table = dirichlet_table(4000, 4, alpha, generator=seeded())
    assert torch.allclose(table.sum(1), torch.ones(4000, dtype=torch.float64))
    # Variance of one share of four: (1/4)(3/4) / (4 alpha + 1); its estimate is off by a few per cent.
    assert abs(float(table.var()) / (0.1875 / (4 * alpha + 1)) - 1) < 0.1
    assert torch.isfinite(dirichlet_table(50, 10, 1e-3, generator=seeded())).all()


def test_a_dirichlet_deal_follows_the_shares() -> None:
    labels = torch.arange(4).repeat_interleave(1000)
    source = shuffled_pool(labels, class_names=NAMES, generator=seeded("other"))
    parts = deal_dirichlet(source, 3, 1.0, generator=seeded())
    counts = torch.stack([labels[part].bincount(minlength=4) for part in parts])
    shares = dirichlet_table(4, 3, 1.0, generator=seeded())
    assert (counts / 1000 - shares.T).abs().max() < 0.002


@pytest.mark.parametrize("largest_group", [1, 5])
def test_what_is_held_back_is_nested_and_shares_no_group_with_the_rest(largest_group: int) -> None:
    labels, groups = labels_and_groups(largest_group=largest_group)
    source = pool(largest_group=largest_group)
    few, more_left = hold_back(source, 3, purpose="a test")
    many, left = hold_back(source, 12, purpose="a test")
    assert torch.equal(many[:, :3], few)
    assert torch.equal(labels[many], torch.arange(4)[:, None].expand(4, 12))
    assert not set(groups[many.flatten()].tolist()) & set(groups[left.examples].tolist())
    assert len(set(many.flatten().tolist())) == 48
    # Clients of a given number do not notice how much is held back.
    counts = torch.tensor([[9, 0, 3, 1], [2, 8, 0, 4]])
    for one, two in zip(deal_by_counts(more_left, counts), deal_by_counts(left, counts), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("largest_group", [1, 5])
def test_a_part_is_split_off_with_the_same_proportions(largest_group: int) -> None:
    labels, groups = labels_and_groups(largest_group=largest_group)
    first, second = split_off(pool(largest_group=largest_group), 0.3)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(len(labels)))
    assert not set(groups[first].tolist()) & set(groups[second].tolist())
    wanted = 0.3 * labels.bincount().double()
    assert ((labels[second].bincount() - wanted >= 0) & (labels[second].bincount() - wanted <= largest_group)).all()


def test_a_group_of_two_classes_is_refused() -> None:
    with pytest.raises(InputError, match="groups"):
        shuffled_pool(torch.tensor([0, 1, 1]), class_names=NAMES, generator=seeded(), groups=torch.tensor([7, 7, 8]))


def test_too_few_of_a_class_are_named_with_numbers() -> None:
    counts = torch.tensor([[10, 0, 30, 0], [0, 2, 21, 0]])
    with pytest.raises(InputError, match=r"cow.* 50"):
        deal_by_counts(pool(), counts)
    with pytest.raises(InputError, match=r"ant.* 50"):
        hold_back(pool(), 51, purpose="the attacker")
    with pytest.raises(InputError, match="210 examples"):
        deal_evenly(pool(), 7, 30)


@pytest.mark.parametrize(
    "deal",
    [
        lambda: deal_by_counts(pool(), torch.tensor([[5, 5, 0, 0], [0, 0, 1, 0]])),
        lambda: deal_by_counts(pool(), torch.tensor([[5, 5, 0, 0], [0, 0, 0, 0]])),
        lambda: deal_evenly(pool(), 120),
        lambda: deal_evenly(pool(), 5, 1),
        lambda: deal_dirichlet(pool(), 60, 0.05, generator=seeded()),
        lambda: deal_shards(pool(), 150, 1, generator=seeded()),
    ],
    ids=["counts", "none", "evenly", "one each", "dirichlet", "shards"],
)
def test_a_client_of_one_example_is_refused(deal: Callable[[], list[Tensor]]) -> None:
    with pytest.raises(InputError, match=r"at least 2 examples; found client \d+ with [01]"):
        deal()


def test_a_class_without_examples_is_dealt_like_any_other() -> None:
    labels = torch.tensor([0, 1, 3]).repeat(40)
    source = shuffled_pool(labels, class_names=NAMES, generator=seeded())
    for parts in (
        deal_dirichlet(source, 2, 5.0, generator=seeded()),
        deal_shards(source, 3, 2, generator=seeded()),
        list(split_off(source, 0.5)),
    ):
        assert sorted(torch.cat(parts).tolist()) == list(range(120))
    assert len(deal_by_counts(source, torch.tensor([[2, 2, 0, 2]]))[0]) == 6


def test_proportions_become_the_nearest_whole_numbers() -> None:
    counts = composition_counts(torch.tensor([[0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.99, 0.01]]), [7, 10, 30])
    assert counts.tolist() == [[4, 2, 1], [4, 3, 3], [0, 30, 0]]
    # User 5 on MNIST: eighths, tenths and twelfths, printed with two digits that sum to 99.99 %.
    users = composition_counts(decaf_composition("MNIST"), 120)
    assert users[4].tolist() == [6, 22, 0, 10, 12, 15, 30, 10, 8, 7]


@pytest.mark.parametrize(
    ("proportions", "found"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "sum of 0.9 for client 1"),
        ([[1.5, -0.5]], "sum of 1 for client 0"),
        ([[float("nan"), 0.5]], "client 0"),
    ],
)
def test_what_is_no_composition_is_refused(proportions: list[list[float]], found: str) -> None:
    with pytest.raises(InputError, match=found):
        composition_counts(torch.tensor(proportions), 10)


def test_the_papers_compositions_are_whole_and_have_its_null_classes() -> None:
    values = decaf_compositions()
    assert values.groupby("data")["user"].nunique().to_dict() == {
        "MNIST": 10, "FashionMNIST": 10, "cifar10": 10, "fer2013": 7, "ham10000": 7
    }  # fmt: skip
    sums = values.groupby(["data", "user"])["proportion"].sum()
    assert ((sums - 1).abs() <= 0.00051).all()
    for data in ("MNIST", "FashionMNIST", "cifar10"):
        # Section IV-A: one even, three with all classes, the others without 1, 2, 3, 5, 7 and 9.
        composition = decaf_composition(data)
        assert (composition[0] == 0.1).all()
        assert (composition == 0).sum(1).tolist() == [0, 0, 0, 0, 1, 2, 3, 5, 7, 9]
    assert torch.equal(decaf_composition("MNIST"), decaf_composition("FashionMNIST"))
    with pytest.raises(InputError, match="Decaf"):
        decaf_composition("ImageNet")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"clients": 0}, "clients of at least 1"),
        ({"shards_per_client": 0}, "shards_per_client of at least 1"),
        ({"scheme": "composition", "composition": "MNIST"}, "examples_per_client for the scheme composition"),
        ({"scheme": "composition", "examples_per_client": 9}, "composition of 4 classes"),
        ({"scheme": "shards", "examples_per_client": 9}, "no examples_per_client"),
        ({"scheme": "iid", "examples_per_client": [9, 9]}, "one number"),
        ({"scheme": "dirichlet", "alpha": 0.0}, "alpha above 0"),
        ({"scheme": "composition", "composition": "fer2013", "examples_per_client": 9}, "composition of 4 classes"),
        ({"scheme": "composition", "composition": [[0.5, 0.5], [1.0]], "examples_per_client": 9}, "in every row"),
        ({"scheme": "composition", "composition": [0.5, 0.5], "examples_per_client": 9}, "in every row"),
        ({"scheme": "dirichlet", "clients": 3, "examples_per_client": [9, 9]}, "one for each of 3 clients"),
        ({"scheme": "dirichlet", "clients": 3, "examples_per_client": -9}, "examples_per_client"),
    ],
)
def test_options_that_fit_nothing_are_refused(arguments: dict[str, object], found: str) -> None:
    with pytest.raises(InputError, match=found):
        split_clients(pool(), ClientSplit(**arguments), seed=0, data="MNIST")  # type: ignore[arg-type]
