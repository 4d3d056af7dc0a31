"""A figure gives the same files every time, also after it was stored or sent to another process."""

import copy

import pytest
from matplotlib.figure import Figure

from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.figures.figure_data import DrawnFigure, legend_right, styled


def made() -> DrawnFigure:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], label="a < b")
    figure.axes[0].legend()
    return DrawnFigure("caption", figure=figure, name="line")


@pytest.mark.integration
def test_files_are_the_same_each_time_with_text_that_can_be_searched() -> None:
    assert made().svg == made().svg
    assert made().file("pdf") == made().file("pdf")
    assert made().svg.startswith("<svg")
    assert "a &lt; b" in made().svg
    assert made().file("pdf").startswith(b"%PDF")


def test_what_is_stored_or_sent_keeps_its_files_without_the_figure() -> None:
    drawing = made()
    files = {kind: drawing.file(kind) for kind in ("svg", "pdf")}
    for back in (CaptionedFigure.of_record(drawing.record()), copy.deepcopy(drawing)):
        assert (type(back), back.caption, back.name, back.files) == (CaptionedFigure, "caption", "line", files)


@pytest.mark.parametrize("label", ["raifle", "affine-inversion, manipulation noise, ranker neural-2, epsilon inf"])
def test_a_legend_leaves_the_axes_room_and_widens_a_figure_only_for_long_labels(label: str) -> None:
    figure, ((axes,),) = styled(6, 4)
    axes.plot([0, 1], [0, 1], label=label)
    legend_right(axes)
    figure.draw_without_rendering()
    assert axes.get_window_extent().width / figure.dpi > 2
    assert (figure.get_figwidth() == 6) == (label == "raifle")
