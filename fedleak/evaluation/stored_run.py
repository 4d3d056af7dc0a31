"""Stored evaluation of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedleak.evaluation.evaluation import Evaluation


@dataclass(frozen=True)
class StoredRun:
    """Evaluation of a run, to be compared with that of another one.

    Attributes:
        name: name of the run.
        evaluation: its evaluation.
        data: name and hash of its data; empty if an earlier version of this project did not keep them.
    """

    name: str
    evaluation: Evaluation
    data: Mapping[str, str]
