"""Numbers have names that tell settings apart."""

from fedleak.reports.leak_numbers import leak_numbers, leaks
from tests.reports.toys import cell, table


def test_settings_that_differ_stand_in_the_names() -> None:
    results = table(cell("direction", 0.7, epsilon=1), cell("direction", 0.9, epsilon="inf"))
    assert leaks(results) == {"audit/direction, epsilon 1/auc": 0.7, "audit/direction, epsilon inf/auc": 0.9}


def test_the_ends_of_the_intervals_stand_next_to_the_means() -> None:
    found = leak_numbers(table(cell("direction", 0.7, half=0.1)))
    assert found == {"audit/direction/auc": 0.7, "audit/direction/auc low": 0.6, "audit/direction/auc high": 0.7 + 0.1}
