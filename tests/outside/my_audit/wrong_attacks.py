"""Attacks with a mistake each."""

import torch

from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from my_audit.interaction_counts import CountByNorm, CountEstimate


class UnknownNeed(CountByNorm):
    """An attack whose need no view has."""

    name = "unknown-need"
    threat_model = ThreatModel(sees="", knows="", needs=("gradients",))


class WrongShape(CountByNorm):
    """An attack that returns one number too many."""

    name = "wrong-shape"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        return CountEstimate(counts=torch.zeros(view.victims + 1))


class WrongType(CountByNorm):
    """An attack that returns no estimate."""

    name = "wrong-type"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        return torch.zeros(view.victims)  # type: ignore[return-value]


class Raises(CountByNorm):
    """An attack with a defect."""

    name = "raises"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CountEstimate:
        raise ZeroDivisionError("of no use")


class Twice(CountByNorm):
    """An attack with the name of another one of its family."""
