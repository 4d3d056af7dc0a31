"""Reliability of attacks with priors: probabilities against the shares of answers that are true."""

from evaluation.posterior.posterior import ANSWERS, PROBABILITY, TRUE
from reports.figures.figure_data import DrawnFigure, FigureData, legend_right, styled

_MOST_LINES = 14
"""Largest number of curves in a figure."""
_FEWEST = 20
"""Answers in a bin below which its share is left out."""


def reliability(data: FigureData) -> list[DrawnFigure]:
    """Share of true answers by the probability that an attack gives them, in bins."""
    rows = data.rows[data.rows[PROBABILITY].notna() & (data.rows[ANSWERS] >= _FEWEST)]
    if rows.empty or rows["label"].nunique() > _MOST_LINES:
        return []
    figure, grid = styled(5.5, 4.0)
    axes = grid[0][0]
    axes.plot([0, 1], [0, 1], color=".5", ls=":")
    for label, own in rows.groupby("label", sort=False):
        colour = data.colours.get(str(label).partition(" (")[0])
        axes.plot(own[PROBABILITY], own[TRUE], marker="o", markersize=4, color=colour, label=str(label))
    axes.set(xlabel="probability given to an answer", ylabel="share of answers that are true", aspect="equal")
    legend_right(axes)
    caption = (
        "Reliability of attacks with priors: on the dotted line, answers of probability p are true in a share p of the"
        f" cases. Bins of fewer than {_FEWEST} answers are left out."
    )
    return [DrawnFigure(caption, figure=figure, name="reliability")]
