"""Settings in words."""

from reports.settings import describe, differing

CELLS = [
    {"data": "a", "ranker": "linear", "epsilon": 1},
    {"data": "a", "ranker": "linear", "epsilon": 20, "prior": "count"},
]


def test_what_differs_or_is_missing_somewhere_is_told() -> None:
    assert differing(CELLS) == {"epsilon", "prior"}
    assert differing(CELLS[:1]) == set()


def test_data_and_rankers_speak_for_themselves() -> None:
    assert describe(CELLS[1]) == "a, linear, epsilon 20, prior count"
    assert describe(CELLS[1], {"ranker", "prior"}) == "linear, prior count"
