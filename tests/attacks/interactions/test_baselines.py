"""Baselines read no update: they score the same whatever the clients sent."""

import dataclasses
from pathlib import Path

import pytest
import torch

from fedleak.attacks.interactions import Chance, Popularity
from fedleak.attacks.interactions.baselines import read_counts, two_means
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.scoring import auc_per_victim
from fedleak.core.view import POPULARITY
from tests.attacks.runs import run, with_deltas
from tests.toys import leaky_view


@pytest.mark.parametrize("attack", [Chance(), Popularity()], ids=repr)
def test_the_update_changes_nothing(attack: Attack) -> None:
    view, _ = leaky_view(victims=4)
    silent = with_deltas(view, torch.zeros_like)
    assert torch.equal(run(attack, view, InteractionEstimate).scores, run(attack, silent, InteractionEstimate).scores)


def test_guessing_is_at_chance_and_decides_as_often_as_it_says() -> None:
    (view, labels), often = leaky_view(victims=4), torch.arange(4).repeat(10)
    view, labels = view.select(often), labels[often]
    found = run(Chance(positive_share=0.3), view, InteractionEstimate)
    assert float(auc_per_victim(found.scores, labels, view.served_mask).mean()) == pytest.approx(0.5, abs=0.03)
    assert float(found.decisions[view.served_mask].double().mean()) == pytest.approx(0.3, abs=0.03)


def test_what_others_like_is_only_as_good_as_the_prior() -> None:
    view, labels = leaky_view(victims=4)
    known = dataclasses.replace(view, priors={POPULARITY: 10 * labels})
    found = run(Popularity(), known, InteractionEstimate)
    assert float(auc_per_victim(found.scores, labels, view.served_mask).mean()) == 1
    assert torch.equal(found.decisions, labels > 0.5)
    with pytest.raises(ViewError, match="popularity"):
        run(Popularity(), dataclasses.replace(view, priors={}), InteractionEstimate)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 2\n" * 5, "2 in a line"),
        ("1\n-5\n" * 5, "-5.0 for item 1"),
        ("nan\n" * 5, "nan"),
        ("inf\n" * 5, "inf"),
        ("1\n" * 4, "each of 5 items, got 4"),
        ("one\n", "a number a line"),
    ],
)
def test_a_file_that_holds_no_counts_is_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "counts.txt").write_text(text)
    with pytest.raises(ViewError, match=says):
        read_counts(tmp_path / "counts.txt", items=5)


def test_counts_of_a_file_replace_those_of_the_other_users(tmp_path: Path) -> None:
    view, _ = leaky_view(victims=2)
    view = dataclasses.replace(view, priors={POPULARITY: torch.ones(view.served_mask.shape)})
    numbers = torch.arange(int(view.served_items.max()) + 1)
    (tmp_path / "counts.txt").write_text("\n".join(map(str, numbers.tolist())))
    scores = run(Popularity(counts=tmp_path / "counts.txt"), view, InteractionEstimate).scores
    assert torch.equal(scores[view.served_mask], view.served_items[view.served_mask].double())


def test_two_means_finds_the_gap() -> None:
    values = torch.tensor([[0.1, 0.2, 5.0, 0.15, 9.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, True, False], [True] * 5])
    assert two_means(values, mask).tolist() == [[False, False, True, False, False], [False] * 5]
