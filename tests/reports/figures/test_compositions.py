"""Every client has a panel on one scale, with the best attacks."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedleak.evaluation.persons import client_labels
from fedleak.evaluation.result_names import CLIENTS, DISTANCE
from fedleak.evaluation.scores import with_setting
from fedleak.reports.figures.compositions import compositions, mean_compositions
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.line_styles import line_styles
from tests.reports.toys import cell, table
from tests.wording import lacking

ROLES = {"codebook": "ours", "raifle": "published", "chance": "baseline"}
RESULTS = table(*(cell(name, 0.1, metric="l1") for name in ROLES))


def data(clients: int, attacks: tuple[str, ...] = tuple(ROLES)) -> FigureData:
    victims = list(range(7, 7 + clients))
    shares = pd.DataFrame({"victim": np.repeat(victims, 3), "class": [0, 1, 2] * clients, "true": 1 / 3})
    shares = shares.assign(low=0.2, high=np.nan, seed=0)
    parts = [
        with_setting(shares.assign(attack=name, role=ROLES[name], round=r, inferred=0.3 - wrong), data="d", round=r + 1)
        for wrong, name in zip((0.1, 0.0, 0.0), attacks, strict=False)
        for r in (0, 1)
    ]
    rows = pd.concat(parts, ignore_index=True).assign(person=lambda one: one["victim"])
    return FigureData(rows, "", RESULTS, line_styles(RESULTS), clients=client_labels(victims))


def test_every_client_has_a_panel_of_its_composition() -> None:
    (drawing,) = compositions(data(2))
    assert not lacking(drawing.caption, "inferred class shares", "every client", "d, round 1")
    assert all(f">{text}<" in drawing.svg for text in ("client 7", "client 8", "codebook", "raifle", "true share"))
    assert ">chance<" not in drawing.svg
    assert isinstance(drawing.figure, Figure)
    assert len({axes.get_ylim() for axes in drawing.figure.axes}) == 1
    labels = drawing.figure.axes[0].get_legend_handles_labels()[1]
    assert labels.index("codebook") < labels.index("raifle")  # the best by their results first


def test_many_clients_are_cut_and_baselines_alone_are_drawn() -> None:
    (drawing,) = compositions(data(30))
    assert "12 of 30 clients" in drawing.caption
    assert drawing.svg.count(">client ") == 2 * 12  # a title, and a text under the mouse
    assert ">chance<" in compositions(data(1, ("chance",)))[0].svg


def test_figures_of_means_say_of_which_setting_they_are() -> None:
    means = data(1).rows.assign(**{DISTANCE: 0.1, CLIENTS: 5})
    both = pd.concat([with_setting(means, run="a"), with_setting(means, run="b")], ignore_index=True)
    drawings = mean_compositions(FigureData(both, "", RESULTS, line_styles(RESULTS), clients={}))
    captions = [drawing.caption for drawing in drawings]
    assert len(set(captions)) == len(captions) == 2
    assert all("mean over 5 clients" in caption for caption in captions)
