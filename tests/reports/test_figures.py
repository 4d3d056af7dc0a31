"""Figures need no more than a metric and a setting, and show every line, panel and interval."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from attacks.estimates import ROC_GRID
from evaluation.runner import Evaluation
from evaluation.scores import Line, concat, score_table, with_setting
from protocol.metrics import METRICS
from reports.figures import FIGURES, drawings
from reports.step_figures import update_maps
from tests.reports.toys import LINES, cell, table


def figures(
    *rows: dict[str, Any], evaluation: Evaluation | None = None, metrics: tuple[str, ...] = ("auc",)
) -> dict[str, str]:
    """Drawings of results, by caption."""
    return dict(drawings(evaluation or Evaluation(), table(*rows), metrics))


def ranked(attack: str, epsilon: float | str, queries: int, ranker: str, **setting: Any) -> dict[str, Any]:
    return cell(
        attack,
        0.9 if epsilon == "inf" else 0.6,
        data="MQ2008",
        ranker=ranker,
        queries=queries,
        epsilon=epsilon,
        **setting,
    )


RANKED = [
    ranked(attack, epsilon, queries, ranker)
    for attack in ("codebook", "raifle")
    for ranker in ("linear", "neural-4")
    for queries in (4, 8)
    for epsilon in (1, 20, 100, "inf")
]


def test_words_are_panels_and_further_numbers_are_lines() -> None:
    ((caption, svg),) = figures(*RANKED).items()
    assert caption == "MQ2008: auc against epsilon with 95% intervals; stars are the paper's values."
    assert svg.startswith("<svg")
    for text in ("ranker linear", "ranker neural-4", "queries 8", "codebook", "raifle", "inf", "epsilon", "auc"):
        assert f">{text}<" in svg, text
    assert ">MQ2008<" not in svg  # what does not vary is told once


def test_the_papers_numbers_are_stars() -> None:
    plain = figures(*RANKED).popitem()[1]
    starred = figures(*({**row, "paper": 0.77, "source": "RAIFLE Table VII"} for row in RANKED)).popitem()[1]
    assert starred.count("<path") >= plain.count("<path") + len(RANKED)


def test_every_interval_is_drawn() -> None:
    """Wider intervals are longer lines: the same picture, but for the ends."""
    one, two = (figures(*({**row, "low": row["mean"] - half} for row in RANKED)).popitem()[1] for half in (0.01, 0.05))
    assert one != two


def test_what_the_attacks_name_tells_is_no_panel() -> None:
    several = [cell("codebook", 0.9, manipulation=kind, ratio=r) for kind in ("none", "noise") for r in (1, 2)]
    assert ">manipulation noise<" in figures(*several).popitem()[1]
    own = (("chance", "none"), ("raifle", "noise"))
    each = [cell(name, 0.9, manipulation=kind, ratio=r) for name, kind in own for r in (1, 2)]
    assert "manipulation" not in figures(*each).popitem()[1]


def test_a_metric_from_elsewhere_has_figures_too() -> None:
    rows = [cell("codebook", 3.0, metric="a-metric-of-its-own", size=s) for s in (1, 2, 4)]
    assert list(figures(*rows, metrics=("a-metric-of-its-own",))) == [
        "d: a-metric-of-its-own against size with 95% intervals; stars are the paper's values."
    ]


def test_two_settings_of_which_a_row_has_one_are_two_figures_and_a_baseline_is_level() -> None:
    rows = [cell("codebook", 1 / t, metric="error", interactions=t) for t in (1, 10, 100)]
    rows += [cell("codebook", 0.1, metric="error", of_bound=b) for b in (0.1, 1)]
    rows += [cell("chance", 0.5, metric="error", interactions=100), cell("bound", 30.0, metric="bound-of-all")]
    drawn = figures(*rows, metrics=("error",))
    axes = ("interactions", "of_bound")
    end = "with 95% intervals; stars are the paper's values."
    assert list(drawn) == [f"d: error against {axis} {end}" for axis in axes]
    assert drawn[next(iter(drawn))].count("stroke-dasharray") > 0  # the theorem's number
    without = figures(*rows[:-1], metrics=("error",))
    assert next(iter(without.values())).count("stroke-dasharray") == 0


def test_without_a_number_that_varies_attacks_stand_next_to_one_another() -> None:
    ((caption, svg),) = figures(cell("codebook", 0.9), cell("raifle", 0.8), cell("chance", 0.5)).items()
    assert caption == "d: auc by attack with 95% intervals."
    assert all(f">{name}<" in svg for name in ("codebook", "raifle", "chance"))
    assert figures(cell("codebook", 0.9)) == {}


def scored(values: list[float], **setting: Any) -> Evaluation:
    rows = [
        score_table(name, {"auc": values}, setting={"data": "d", **setting}, seed=0, victims=range(len(values)))
        for name in ("codebook", "chance")
    ]
    return Evaluation(scores=concat(rows), lines=LINES)


def test_the_distribution_over_victims_is_drawn_unless_it_is_yes_or_no() -> None:
    rows = [cell("codebook", 0.9), cell("chance", 0.5)]
    drawn = figures(*rows, evaluation=scored([0.2, 0.7, 0.9]))
    assert "d: auc of each client, in ascending order." in drawn
    assert ">chance<" in drawn["d: auc of each client, in ascending order."]
    assert "d: auc of each client, in ascending order." not in figures(*rows, evaluation=scored([0.0, 1.0, 1.0]))


def test_mean_roc_curves_are_drawn_by_label() -> None:
    evaluation = Evaluation(roc={"codebook": (2 * ROC_GRID.double().sqrt(), 2), "empty": (ROC_GRID.double(), 0)})
    drawn = figures(cell("codebook", 0.9), evaluation=evaluation)
    svg = drawn["Mean ROC curve over clients; the dotted line is guessing."]
    assert ">codebook<" in svg
    assert ">empty<" not in svg


def test_every_client_has_a_panel_of_its_composition() -> None:
    shares = pd.DataFrame({"victim": np.repeat([7, 8], 3), "class": [0, 1, 2] * 2, "true": 1 / 3, "inferred": 0.3})
    shares = shares.assign(low=0.2, high=np.nan, seed=0)
    parts = [
        with_setting(shares.assign(attack=n, round=r), data="d", round=r + 1) for n in ("ours", "guess") for r in (0, 1)
    ]
    lines = {"ours": Line(role="ours"), "guess": Line(role="baseline")}
    evaluation = Evaluation(profiles=pd.concat(parts, ignore_index=True), lines=lines)
    ((caption, svg),) = drawings(evaluation, table(cell("ours", 0.1, metric="l1"), lines=lines), ("l1",))
    assert caption == "True (bars) and inferred class shares of every client with 95% intervals: d, round 1."
    assert all(f">{text}<" in svg for text in ("client 1", "client 2", "ours"))
    assert ">guess<" not in svg


def test_privacy_is_drawn_against_utility() -> None:
    rows = []
    for kind, amount in (("none", 0), ("noise", 0.1), ("noise", 1.0)):
        rows.append(cell("codebook", 20 - 9 * amount, metric="times-chance", mitigation=kind, amount=amount))
        rows.append(cell("global-model", 1 - amount / 2, metric="utility", mitigation=kind, amount=amount))
    drawn = figures(*rows, metrics=("times-chance", "utility"))
    svg = drawn["Privacy and utility against codebook; the upper left is better."]
    assert ">noise<" in svg
    assert ">none<" not in svg  # it is where every curve begins


def test_the_same_results_give_the_same_drawing() -> None:
    assert figures(*RANKED) == figures(*RANKED)


def test_numbers_that_are_missing_draw_nothing_wrong() -> None:
    rows = [{**cell("codebook", 0.9, rounds=r), "mean": np.nan, "low": np.nan, "high": np.nan} for r in (1, 2)]
    assert len(figures(*rows)) == 1


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.draw.__name__.strip("_"))
def test_a_figure_is_not_drawn_without_what_it_needs(figure: Any) -> None:
    assert not figure.fits(pd.DataFrame())
    assert figure.metric is None or figure.metric in METRICS


def test_maps_name_both_kinds() -> None:
    generator = torch.Generator().manual_seed(0)
    honest, others = torch.randn(2, 9, 2, generator=generator)
    svg = update_maps({"perplexity 10": (honest, others), "perplexity 30": (honest, others)})
    assert all(f">{text}<" in svg for text in ("perplexity 10", "perplexity 30", "honest", "manipulated"))
