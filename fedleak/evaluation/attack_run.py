"""Run of one attack of a plan on one view, so that what fails is listed and the others go on."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.view import RoundView, View
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.failures import unfit
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.runner import AttackError, attack_view, estimate_of

TRACEBACKS = "errors.txt"
"""File of the tracebacks of attacks that ended in an exception."""
_LONGEST = 200
"""Characters of the message of an exception that a reason has."""


@dataclass(frozen=True)
class AttackRun:
    """Run of the attacks of a plan on views, one at a time.

    Attributes:
        plan: what is run.
        execution: how it is run here.
        bar: progress bar of the attacks.
    """

    plan: AuditPlan
    execution: Execution
    bar: AttackBar

    def on(
        self,
        attack: Attack,
        name: str,
        view: View,
        truth: Mapping[str, Tensor],
        setting: Mapping[str, Any],
        unscored: Tensor | None = None,
    ) -> Evaluation:
        """Scores of an attack on a view; an attack that does not fit is listed as missing, as is one that fails alone.

        A part of a plan computes estimates for the store alone: they are scored when all parts have ended.

        Args:
            attack: the attack.
            name: its name in results, with its family where another attack has the same name.
            view: what it gets.
            truth: ground truth of the victims.
            setting: cell that the scores belong to.
            unscored: ``(V,)`` mask of the victims whose scores are undefined; None for none.

        Raises:
            OutOfTimeError: the attack would not end in time.
            InputError: the recording is damaged, or the plan lets attacks end in exceptions.
        """
        lacking = unfit(attack, view, truth)
        if lacking is not None:
            self.bar.leave_out(name)
            return Evaluation(missing={name: lacking})
        # Where another attack has the same name, the label has the family too.
        label = None if name == attack.name else f"{attack.family}/{attack.label(view)}"
        round_number = view.round if attack.view is RoundView else None
        try:
            with self.bar.attacking(name, max(view.victims, 1), round_number):
                if self.execution.of_a_part:
                    estimate_of(attack, view, seed=self.plan.seed, store=self.execution.store)
                    return Evaluation()
                evaluation = attack_view(
                    attack,
                    view,
                    truth,
                    seed=self.plan.seed,
                    setting=setting,
                    label=label,
                    unscored=unscored,
                    store=self.execution.store,
                )
        except ViewError as error:
            return Evaluation(missing={name: Reason("misfit", says=str(error))})
        except Exception as error:
            # A damaged recording concerns all attacks; a defect, one.
            concerns_all = isinstance(error, InputError) and not isinstance(error, AttackError)
            if concerns_all or not self.plan.separate:
                raise
            return Evaluation(missing={name: defect_of(error)}, tracebacks={name: traceback.format_exc()})
        # An estimate that was read back took its time in an earlier run.
        if len(evaluation.scores):
            self.bar.took(name, float(evaluation.scores["seconds"].iloc[0]))
        return evaluation


def defect_of(error: Exception) -> Reason:
    """Reason of an exception of an attack."""
    if isinstance(error, InputError):
        way_out = f"{error.way_out[0].lower()}{error.way_out[1:]}"
        return Reason("defect", way_out=way_out.rstrip("."), says=error.found)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())[:_LONGEST]
    where = f"{Path(frame.filename).name}, line {frame.lineno}"
    return Reason(
        "defect",
        way_out=f"please report it with {TRACEBACKS}",
        says=f"it ended in {type(error).__name__}: {message} ({where}), a defect",
    )
