"""Numbers of examples that clients do not report."""

import torch
from torch import Tensor

from fedleak.core.ranges import PositiveInt
from fedleak.defenses.base import Defense


class CountsWithheld(Defense):
    """Clients report one public number of examples instead of their own, so that the server weights all alike.

    What an attack computes with the number of examples, such as the size of a local step, is as wrong as this number.
    The update itself is sent as it is.

    Args:
        examples: number that every client reports, e.g. the typical one.
    """

    def __init__(self, *, examples: PositiveInt) -> None:
        self.examples = examples

    def shown_counts(self, counts: Tensor) -> Tensor:
        return torch.full_like(counts, self.examples)
