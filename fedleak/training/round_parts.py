"""Parts of a round: those of a cohort whose updates fit in memory, and the part of a rank without a client."""

import torch

from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.defenses.base import Update
from fedleak.training.learner import Learner

_NUMBERS_AT_ONCE = 2**26
"""Largest number of delta entries that a round keeps at once if no callback reads them: 256 MiB."""


def parts_of(cohort: Cohort, learner: Learner, *, reads_updates: bool) -> list[Cohort]:
    """Parts of a cohort whose deltas fit in memory; one part if a callback or a defence reads all deltas.

    Args:
        cohort: the clients.
        learner: what they train.
        reads_updates: whether a callback reads the deltas of all clients.
    """
    if reads_updates or any(defense.joint for defense in learner.defenses) or len(cohort) == 0:
        return [cohort]
    # Numbers of one client's delta: of tables, the rows that it sends.
    hidden = learner.hidden_rows
    width = {name: rows.shape[1] for name, rows in cohort.rows.items() if name not in hidden}
    numbers = 0
    for name, value in learner.public_parameters().items():
        if value.dim():
            numbers += width.get(name, len(value)) * value[0].numel()
        else:
            numbers += 1
    count = -(-len(cohort) * numbers // _NUMBERS_AT_ONCE)
    if count == 1:
        return [cohort]
    parts = torch.arange(len(cohort)).tensor_split(count)
    return [cohort.select(positions) for positions in parts]


def update_of_nobody(learner: Learner, model: Parameters) -> Update:
    """Empty update of a rank without a client in this round, after the defences, which may add to it."""
    device = next(iter(model.values())).device
    rows = {name: torch.zeros(0, 0, dtype=torch.int64, device=device) for name in learner.sent_rows}
    deltas = {}
    for name, value in model.items():
        shape = (0, 0, *value.shape[1:]) if name in rows else (0, *value.shape)
        deltas[name] = value.new_zeros(shape)
    update = Update(deltas, rows, clients=torch.zeros(0, dtype=torch.int64, device=device))
    for defense in learner.defenses:
        update = defense.protect(update, lambda _: torch.Generator())
    return update
