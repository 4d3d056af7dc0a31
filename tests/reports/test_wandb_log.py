"""What goes to Weights & Biases cannot run there."""

from typing import Any

from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.reports.wandb_log import log_results
from tests.reports.toys import cell, table


class Kept:
    """Takes what `wandb.init` would be given."""

    def __init__(self) -> None:
        self.summary: dict[str, float] = {}
        self.logged: dict[str, Any] = {}

    def log(self, content: dict[str, Any]) -> None:
        self.logged |= content


def test_a_caption_is_text_and_a_figure_is_drawn() -> None:
    run = Kept()
    drawing = CaptionedFigure("<script>alert(1)</script> & so on", files={"svg": b"<svg></svg>"})
    log_results(run, table(cell("direction", 0.7, half=0.1, epsilon="inf")), [drawing])
    assert run.logged["audit/figure 1"].html == "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; so on</p><svg></svg>"
    assert run.summary["audit/direction/auc low"] == 0.7 - 0.1
    logged = run.logged["audit/results"]
    (row,) = logged.data
    assert dict(zip(logged.columns, row, strict=True))["setting"] == '{"data": "d", "epsilon": "inf"}'
    assert row[-2:] == [None, None]
