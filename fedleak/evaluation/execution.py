"""How the jobs of a plan are run in one process: with which estimates, in which time, and which of them."""

from collections.abc import Collection
from dataclasses import dataclass, field

from fedleak.core.attack import Attack
from fedleak.core.view import View
from fedleak.evaluation.audit_plan import JobKey, attack_key
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.time_budget import TimeBudget


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the jobs of a plan are run here; it decides which of them run in time, and no score of those that do.

    Attributes:
        store: files of estimates, which are read back, and to which new ones are added; None for none.
        budget: time in which the attacks have to end.
        only: keys of the jobs to run, which are a part of the plan; None for all of them.
        progress: whether to show a progress bar.
    """

    store: EstimateStore | None = None
    budget: TimeBudget = field(default_factory=lambda: TimeBudget(None))
    only: Collection[JobKey] | None = None
    progress: bool = True

    @property
    def of_a_part(self) -> bool:
        """Whether this runs a part of the plan."""
        return self.only is not None

    def runs(self, attack: Attack, round_number: int | None, view: int) -> bool:
        """Whether the job of an attack on a view is among those to run, see `fedleak.evaluation.audit_plan.Job`."""
        return self.only is None or (attack_key(attack), round_number, view) in self.only

    def has_time_for(self, attack: Attack, view: View) -> bool:
        """Whether an attack may still begin on a view: time is left, or its estimate was made before."""
        return self.budget.left > 0 or self.has_estimate(attack, view)

    def has_estimate(self, attack: Attack, view: View) -> bool:
        """Whether the estimate of an attack on a view was made before."""
        return self.store is not None and self.store.has(attack, view)
