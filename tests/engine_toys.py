"""An engine of somebody else, and an audit as the work of engines."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.linkability.similarity import Linkability
from fedleak.attacks.recommendation.item_deltas import Direction, RowNorm
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.engines.engine import Engine, Part, Result
from fedleak.recordings.recording import Recording


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backwards(Engine):
    """An engine of somebody else, named by its class path."""

    name = "backwards"
    times: int = 1

    def run(self, function: Callable[[Part], Result], work: Sequence[Part]) -> Iterator[Result]:
        results = [function(part) for part in reversed(work)]
        yield from reversed(results * self.times)


def audited(folder: Path, engine: Engine | None) -> pd.DataFrame:
    """Scores of an audit by an engine, or by this process."""
    attacks = [RowNorm(), Direction(), Popularity(), Linkability()]
    plan = AuditPlan(recording=Recording(folder), attacks=attacks, describe=False)
    return run_audit(plan, engine=engine, progress=False).scores.drop(columns="seconds")
