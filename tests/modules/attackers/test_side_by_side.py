"""Parts side by side: all are done, progress is theirs together, and an end anywhere ends all."""

import threading

import pytest
import torch

from fedleak.core.progress import progress_listener, report_progress
from fedleak.modules.attackers.side_by_side import side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_every_part_is_done_and_progress_is_weighted() -> None:
    done, shares = set(), list[float]()

    def work(part: int) -> None:
        assert torch.get_num_threads() == 1
        report_progress(0.5)
        done.add(part)

    with progress_listener(shares.append):
        side_by_side(work, [0, 1, 2], [1.0, 1.0, 2.0])
    assert done == {0, 1, 2}
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert set(shares) <= {n / 8 for n in range(9)}


def test_nothing_to_do() -> None:
    side_by_side(lambda _: None, [], [])


def endless(part: int) -> None:
    while True:
        report_progress(0.1)
        threading.Event().wait(0.001)


def test_failure_of_a_part_ends_the_others() -> None:
    def work(part: int) -> None:
        if part == 1:
            raise ValueError("part 1")
        endless(part)

    with pytest.raises(ValueError, match="part 1"):
        side_by_side(work, [0, 1, 2], [1.0, 1.0, 1.0])


def test_who_listens_can_end_all_parts() -> None:
    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with progress_listener(stop), pytest.raises(KeyboardInterrupt):
        side_by_side(endless, [0, 1, 2], [1.0, 1.0, 1.0])
