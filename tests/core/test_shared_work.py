"""Work that attacks on a view share: computed once, and counted to each attack that uses it."""

import doctest
import time

import pytest

from fedleak.core import shared_work
from fedleak.core.shared_work import SharedWork


def test_the_example_gives_its_numbers() -> None:
    assert doctest.testmod(shared_work) == (0, 5)


def test_each_key_is_computed_once() -> None:
    shared = SharedWork()
    values = [shared.value("key", lambda: 1), shared.value("key", lambda: 2), shared.value("other", lambda: 3)]
    assert values == [1, 1, 3]
    assert len(shared) == 2


def test_what_fails_is_not_kept() -> None:
    shared = SharedWork()
    with pytest.raises(ZeroDivisionError):
        shared.value("key", lambda: 1 / 0)
    assert shared.value("key", lambda: 1) == 1


def test_the_seconds_of_what_was_computed_before_count_once_for_the_attack_that_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 3.0, 10.0, 15.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    shared = SharedWork()
    shared.start_attack()
    shared.value("simulated", lambda: 1)
    assert shared.seconds_before == 0  # it is part of this attack's own time
    shared.start_attack()
    shared.value("simulated", lambda: 1)
    shared.value("simulated", lambda: 1)
    shared.value("fit", lambda: 2)
    assert shared.seconds_before == 3
    shared.start_attack()
    assert shared.seconds_before == 0
    shared.value("fit", lambda: 2)
    assert shared.seconds_before == 5
