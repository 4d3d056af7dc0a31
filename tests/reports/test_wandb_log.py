"""What goes to Weights & Biases cannot run there."""

from typing import Any

from reports.results import Result
from reports.wandb_log import log_results


class Kept:
    """Takes what `wandb.init` would be given."""

    def __init__(self) -> None:
        self.summary: dict[str, float] = {}
        self.logged: dict[str, Any] = {}

    def log(self, content: dict[str, Any]) -> None:
        self.logged |= content


def test_a_caption_is_text_and_a_figure_is_drawn() -> None:
    run = Kept()
    result = Result("direction", {"data": "d"}, "auc", 0.7, 0.1, (0.6, 0.8), 9, 0.1)
    log_results(run, [result], [("<script>alert(1)</script> & so on", "<svg></svg>")])
    assert run.logged["audit/figure 1"].html == "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; so on</p><svg></svg>"
    assert run.summary["audit/direction/auc low"] == 0.6
