"""Which tensors of a model are statistics of a batch norm."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names of batch-norm statistics, which a client sends if it sends its whole state."""


def is_statistic(name: str) -> bool:
    """Whether a tensor of the model is a running statistic of a batch norm, which no gradient changes."""
    return name.rpartition(".")[2] in STATISTICS
