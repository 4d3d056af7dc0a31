"""Curves against a number of interactions, and where one attack meets another."""

import math

import pytest

from reports.curves import curve_figures, interactions_needed, vector_headline
from reports.intervals import summarise
from reports.results import VictimRow

SCORES = (("pac", 0.2), ("pac-spectral", 0.1), ("mean-item", 0.3))
POINTS = [1, 3, 10, 32, 100, 316, 1000]


def rows(attack: str, factor: float, victims: int = 40, metric: str = "error") -> list[VictimRow]:
    """Errors ``factor * (1 + v / 100) / sqrt(T)`` of every victim."""
    return [
        VictimRow(attack, {"data": "d", "interactions": t}, 0, 0, v, 0, 0, metric, factor * (1 + v / 100) / t**0.5, 0.0)
        for t in POINTS
        for v in range(victims)
    ]


def test_a_tenth_of_the_error_needs_a_hundredth_of_the_interactions() -> None:
    found = {
        (r.attack, r.metric, r.setting["as_pac_after"]): r
        for r in interactions_needed(rows("pac", 1) + rows("ours", 0.1))
    }
    ratio = found["ours", "times-fewer", 1000]
    assert found["ours", "interactions", 1000].mean == pytest.approx(10, rel=0.1)
    assert ratio.mean == pytest.approx(100, rel=0.1)
    assert ratio.n == 40
    assert ratio.ci95[0] <= ratio.mean <= ratio.ci95[1]
    # Better at the first point already: that point's T, and no more is claimed.
    assert found["ours", "interactions", 100].mean == 1


def test_an_attack_that_never_gets_there_has_no_number() -> None:
    found = interactions_needed(rows("pac", 0.1) + rows("worse", 5))
    assert {r.attack for r in found} == {"worse"}
    assert all(math.isnan(r.mean) for r in found)


def test_without_the_published_attack_or_an_axis_there_is_nothing_to_say() -> None:
    assert interactions_needed(rows("ours", 1)) == []
    plain = [VictimRow("pac", {"data": "d"}, 0, 0, 0, 0, 0, "error", 0.5, 0.0)]
    assert interactions_needed(plain) == []
    assert curve_figures(summarise(plain), ["error"]) == []


def test_the_headline_tells_the_best_error_and_what_guessing_gives() -> None:
    plain = [VictimRow(name, {"data": "d"}, 0, 0, v, 0, 0, "error", e, 0.0) for name, e in SCORES for v in range(5)]
    sentence = vector_headline(summarise(plain))
    assert sentence is not None
    assert "0.100" in sentence
    assert "its own model alone gives 0.300" in sentence
    assert vector_headline([]) is None


def test_one_figure_shows_both_curves_and_the_theorems_line() -> None:
    bound = [VictimRow("theorem-1", {"data": "d"}, 0, 0, v, 0, 0, "bound-of-all", 60.0, 0.0) for v in range(3)]
    drawn = curve_figures(summarise(rows("pac", 1) + rows("ours", 0.1) + bound), ["error"])
    assert len(drawn) == 1
    caption, svg = drawn[0]
    assert caption.startswith("error against interactions T")
    assert svg.startswith("<svg")
    assert svg.count("the theorem's T") == 1
