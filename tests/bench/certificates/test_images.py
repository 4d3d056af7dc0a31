"""What `linear-inversion` certifies of images under conditions that made it certain of what is false."""

import functools

import pytest

from bench.certificates import Counts, images

CONDITIONS = images.conditions()


@functools.cache
def counts(condition: str) -> Counts:
    return CONDITIONS[condition](0)


@pytest.mark.integration
@pytest.mark.parametrize(
    "condition",
    [
        "digits by 16, 20 records, 64 neurons",
        "digits of 7 bits, 40 records, 32 neurons",
        "digits of 7 bits, 20 records, 64 neurons, algorithm unknown",
        "4 bits a number, 40 records, 32 neurons",
        "8 bits a number, 10 records, 64 neurons",
        "8 bits, a scale for each neuron, even levels",
        "largest half, even levels",
        "random half, even levels",
        "float16, even levels",
        "noise of 1e-7, even levels",
        "label smoothing, even levels",
        "class weights, even levels",
        "learning rate said to be half of what it is, even levels",
        "half of the records twice, even levels",
        "64 records, 64 neurons, even levels",
        "even portraits, algorithm unknown",
        "4 even portraits, 8 neurons, 2 classes",
        "learning rate said to be twice what it is, 4 even portraits",
    ],
)
def test_nothing_is_certified_that_no_client_has(condition: str) -> None:
    assert counts(condition).false == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("condition", "least"),
    [
        ("digits of 17 levels, 20 records, 64 neurons", 0.3),
        ("digits of 7 bits, 10 records, 64 neurons", 0.9),
        ("16 bits a number, 10 records, 64 neurons", 0.9),
        ("clipped, even levels", 0.2),
        ("rectangles, float32", 0.9),
        ("rectangles, algorithm unknown", 0.5),
    ],
)
def test_what_is_certified_without_a_false_one_is_still_much(condition: str, least: float) -> None:
    found = counts(condition)
    assert found.false == 0
    assert found.certified >= least * found.records
