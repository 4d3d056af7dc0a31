"""By how much each word's row of the last layer moves: the bias of a user, on both of its devices."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from evaluation.message_selection import all_messages
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from reports.identity_figures import bias_figure

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

_SHOWN = 8
"""Users in the figure."""


@dataclass(frozen=True, kw_only=True)
class UserBias(AfterStep):
    """Correlations of users' biases over the words, after what all users share is taken out (figure 9).

    ``bias-correlation`` is that of a user's known and anonymous device, ``bias-correlation-others`` that of its known
    device with other users' anonymous ones.

    Attributes:
        parameter: the matrix with a row for each word.
    """

    name: ClassVar[str] = "user-bias"
    metrics: ClassVar[tuple[str, ...]] = ("bias-correlation", "bias-correlation-others")
    parameter: str = "output.weight"

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        view, truth = all_messages(run.recording)
        assert view.known is not None
        own, known = (_log_norms(one.deltas[self.parameter]) for one in (view, view.known))
        users, known_users = truth["user"], truth["known_user"]
        both = [user for user in torch.unique(users).tolist() if user in known_users]
        means = [
            torch.stack([values[owner == user].mean(0) for user in both])
            for values, owner in ((known, known_users), (own, users))
        ]
        biases = [value - value.mean(0) for value in means]
        alike = torch.corrcoef(torch.cat(biases))[: len(both), len(both) :]
        others = (alike.sum(1) - alike.diagonal()) / max(len(both) - 1, 1)
        correlations = {"bias-correlation": alike.diagonal(), "bias-correlation-others": others}
        scores = run.scores("user-bias", correlations, victims=both, round=view.round)
        evaluation.scores = concat([evaluation.scores, scores])
        evaluation.figures.append(bias_figure(biases[0][:_SHOWN], biases[1][:_SHOWN], run.cell.setting))
        return evaluation


def _log_norms(delta: Tensor) -> Tensor:
    """``(V, K)`` how far each row of a matrix ``(V, K, H)`` moved, over the mean row, in log."""
    norms = torch.linalg.vector_norm(delta, dim=2)
    relative: Tensor = (norms / norms.mean(1, keepdim=True) + 1e-3).log()
    return relative
