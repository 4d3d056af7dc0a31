"""Updates that are not of the clients to whom the recording assigns them, as the ground truth shows."""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedleak.core.view import RoundView
from fedleak.evaluation.evaluation import Evaluation

_FEWEST = 4
"""Clients from which on an assignment of updates to clients can be far better than the recorded one."""
_CLEAR = 0.25
"""Error with the best assignment over that with the recorded one, below which updates are of other clients."""


def misassigned(evaluation: Evaluation, view: RoundView) -> str:
    """That updates fit the ground truth of other clients, or are one update for all; empty if nothing shows it.

    Class shares that an attack infers from a client's update are compared with the true ones of all clients of the
    round. A wrong estimate is nearer to some other client's by chance too, so those of another client must be exact
    almost, and each client's another one's.
    """
    if len(evaluation.profiles):
        profiles = evaluation.profiles[evaluation.profiles["round"] == view.round]
        for attack, rows in profiles.groupby("attack"):
            inferred = rows.pivot_table(index="victim", columns="class", values="inferred").to_numpy()
            true = rows.pivot_table(index="victim", columns="class", values="true").to_numpy()
            if len(true) >= _FEWEST and _fits_others(inferred, true):
                return (
                    f"what {attack} infers from the updates fits the class shares of other clients than those to whom"
                    " the recording assigns them: check that updates and ground truth have the same order and names"
                )
    return _one_for_all(view)


def _fits_others(inferred: np.ndarray, true: np.ndarray) -> bool:
    """Whether the best assignment of clients to estimates has a far smaller error than the recorded one."""
    # L1 distance of each estimate from each client's shares.
    distances = np.abs(inferred[:, None] - true).sum(2)
    rows, columns = linear_sum_assignment(distances)
    return bool(distances[rows, columns].mean() < _CLEAR * distances.diagonal().mean())


def _one_for_all(view: RoundView) -> str:
    """That all clients sent the same update, to the last bit."""
    sent: Tensor = torch.cat([value.reshape(len(value), -1) for value in view.deltas.values()], dim=1)
    if view.victims < _FEWEST or len(torch.unique(sent, dim=0)) > 1:
        return ""
    return f"all {view.victims} clients sent one and the same update: check that each is recorded with its own"
