"""Attacks stand best first, baselines below, next to the value of guessing."""

import dataclasses

import pytest
from matplotlib.figure import Figure

from fedleak.evaluation.persons import client_labels
from fedleak.evaluation.scores import concat, score_table
from fedleak.reports.figures.by_attack import by_attack
from fedleak.reports.figures.figure_data import DrawnFigure, FigureData
from fedleak.reports.figures.line_styles import line_styles
from tests.reports.toys import cell, table


def drawn(*rows: dict[str, object], metric: str = "auc") -> list[DrawnFigure]:
    results = table(*rows)
    return by_attack(FigureData(results, metric, results, line_styles(results)))


def ticks(drawing: DrawnFigure) -> list[str]:
    assert isinstance(drawing.figure, Figure)
    return [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]


def test_the_best_attack_is_first_and_baselines_are_last() -> None:
    (high,) = drawn(cell("chance", 0.99), cell("raifle", 0.6), cell("codebook", 0.9), cell("popularity", 0.7))
    assert ticks(high) == ["codebook", "raifle", "chance", "popularity"]
    assert ">guessing<" in high.svg
    assert ">baselines<" in high.svg
    (low,) = drawn(*(cell(name, mean, metric="l1") for name, mean in (("raifle", 0.6), ("codebook", 0.9))), metric="l1")
    assert ticks(low) == ["raifle", "codebook"]
    assert "further left is more leakage" in low.caption
    assert ">guessing<" not in low.svg


def test_settings_have_markers_and_an_attack_one_colour() -> None:
    (drawing,) = drawn(*(cell(name, 0.8, prior=prior) for name in ("codebook", "raifle") for prior in ("a", "b")))
    assert all(f">prior {prior}<" in drawing.svg for prior in ("a", "b"))
    assert isinstance(drawing.figure, Figure)
    colours = {line.get_color() for line in drawing.figure.axes[0].lines if line.get_label() == "_nolegend_"}
    assert len(colours) <= 3  # two attacks and the lines of the axes


def test_only_the_papers_own_attacks_have_stars_and_one_attack_needs_no_figure() -> None:
    rows = [{**cell(name, 0.8), "paper": 0.7, "source": "t"} for name in ("codebook", "chance")]
    assert "stars" in drawn(rows[0], rows[1])[0].caption
    assert "stars" not in drawn(rows[0], cell("chance", 0.5))[0].caption  # codebook is ours
    assert drawn(rows[0]) == []


def scored(clients: int) -> FigureData:
    results = table(cell("codebook", 0.8), cell("chance", 0.5))
    people, places = range(10**9, 10**9 + clients), [number / clients for number in range(clients)]
    scores = [
        score_table(name, {"auc": places}, setting={"data": "d"}, seed=seed, victims=people)
        for name in ("codebook", "chance")
        for seed in (0, 1)
    ]
    return FigureData(results, "auc", results, line_styles(results), concat(scores), client_labels(people))


def test_every_client_has_a_dot_with_its_number_and_the_mean_its_interval() -> None:
    (drawing,) = by_attack(scored(4))
    assert "a faint dot is a client" in drawing.caption
    assert drawing.svg.count('<g class="client" data-client="0001">') == 2  # an attack and a baseline
    assert "<title>client 0002, codebook: auc 0.500</title>" in drawing.svg
    assert "<title>codebook: auc 0.800 (0.770 to 0.830), n = 20</title>" in drawing.svg


def test_many_clients_are_a_band() -> None:
    (drawing,) = by_attack(scored(101))
    assert (
        "a faint band goes from the mean of the lowest to that of the highest tenth of the clients" in drawing.caption
    )
    assert "data-client" not in drawing.svg


@pytest.mark.parametrize(("clients", "bands"), [(9, 0), (10, 1), (11, 0), (14, 0), (15, 1), (101, 1)])
def test_where_no_client_may_be_shown_there_is_a_band_whose_ends_are_means_of_five_clients(
    clients: int, bands: int
) -> None:
    (drawing,) = by_attack(dataclasses.replace(scored(clients), clients={}))
    assert "data-client" not in drawing.svg
    assert drawing.caption.count("a faint band") == bands
    assert "dot is a client" not in drawing.caption


def test_intervals_are_promised_only_where_they_are_drawn() -> None:
    (with_them,), (without,) = (drawn(cell("codebook", 0.8, half=h), cell("chance", 0.5, half=h)) for h in (0.1, 0.0))
    assert "with 95% intervals" in with_them.caption
    assert "interval" not in without.caption
