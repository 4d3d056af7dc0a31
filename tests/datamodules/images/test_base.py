"""Images that change from round to round."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.evaluation.message_selection import client_truth
from fedleak.training.candidates import CandidateOptions
from tests.sum_toys import digits, history_of, record


def images(renewed: float, rounds: int = 6, each: int = 20) -> list[Tensor]:
    """``(N, pixels)`` images of one client in each round."""
    data = digits(clients=3, each=each, clients_per_round=1.0, renewed=renewed)
    return [data.cohort(number).examples["image"][1].flatten(1) for number in range(rounds)]


def test_data_do_not_change_by_default() -> None:
    first, *others = images(0.0)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("renewed", [0.1, 0.25])
def test_a_window_moves_by_the_share_that_is_new(renewed: float) -> None:
    found = images(renewed)
    step = round(renewed * 20)
    for before, after in itertools.pairwise(found):
        assert len(after) == 20
        assert torch.equal(before[step:], after[:-step])  # the oldest ones go first
        new = (after[-step:, None] == before).all(2).any(1)
        assert not bool(new.all())


def test_all_data_are_new_in_each_round_if_nothing_is_kept() -> None:
    first, second, *_ = images(1.0)
    assert not bool((first[:, None] == second).all(2).any())


def test_new_images_are_of_no_other_client_and_not_the_attackers() -> None:
    data = digits(clients=3, clients_per_round=1.0, renewed=0.5)
    first = data.cohort(0).examples["image"].flatten(0, 1).flatten(1)
    new = data.cohort(1).examples["image"][:, 15:].flatten(0, 1).flatten(1)
    taken = torch.cat([first, data.auxiliary()["image"].flatten(1)])
    assert not bool((new[:, None] == taken).all(2).any())


def test_a_set_without_images_that_nobody_has_cannot_renew_data() -> None:
    data = digits(clients=3, each=None, clients_per_round=1.0, renewed=0.5)
    assert len(data.cohort(0)) == 3
    with pytest.raises(InputError, match="examples_per_client"):
        data.cohort(1)


def test_candidates_of_data_that_change_are_refused() -> None:
    """What nobody holds at first, a client may hold later."""
    options = CandidateOptions(per_client=2)
    assert len(digits(clients=3).candidates(options).labels) == 12
    with pytest.raises(InputError, match="candidates"):
        digits(clients=3, renewed=0.1).candidates(options)


@pytest.mark.integration
def test_the_recorded_truth_follows_the_images_of_each_round(tmp_path: Path) -> None:
    data = digits(clients=4, renewed=0.5)
    recording = record(tmp_path, data, rounds=3)
    view = history_of(recording)
    truth = client_truth(recording, view, ["class_counts", "clients"])
    for counts, client, number in zip(truth["class_counts"], truth["clients"], view.sent_in, strict=True):
        labels = data.cohort(int(number)).examples["label"][client]
        assert counts.tolist() == labels.bincount(minlength=10).tolist()
    assert len(torch.unique(truth["class_counts"], dim=0)) > 4
