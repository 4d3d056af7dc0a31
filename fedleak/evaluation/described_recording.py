"""What describes a recording in an evaluation, beside the attacks: its updates, false declarations, the learner."""

from fedleak.core.progress import say_what_starts
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.declarations import false_declarations
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.learner_check import with_learner_check
from fedleak.evaluation.lint_table import lint_table
from fedleak.evaluation.relevance import relevant, truth_names
from fedleak.evaluation.result_names import MESSAGES, UPDATES
from fedleak.evaluation.scores import with_setting
from fedleak.evaluation.update_table import update_table
from fedleak.recordings.control import ControlRecording


def with_description(plan: AuditPlan, evaluation: Evaluation, *, progress: bool) -> Evaluation:
    """An evaluation with what describes the recording, and with the check of the learner, as far as a plan asks."""
    recording = plan.recording
    # A control has no clients whose declarations or learner could be checked.
    is_control = isinstance(recording, ControlRecording)
    if progress and (plan.describe or plan.check_learner):
        say_what_starts("describing the updates")
    if plan.describe:
        evaluation = relevant(evaluation, plan.attacks, truth_names(recording))
        evaluation.details[UPDATES] = update_table(recording)
        if not is_control:
            findings = lint_table(recording)
            if len(findings):
                evaluation.details[MESSAGES] = findings
            evaluation.false_declarations = false_declarations(recording)
    if plan.check_learner and not is_control:
        evaluation = with_learner_check(evaluation, recording, plan.attacks, seed=plan.seed)
    if plan.by_round:
        # People count rounds from 1.
        for name in ("scores", "profiles"):
            table = getattr(evaluation, name)
            if len(table):
                setattr(evaluation, name, with_setting(table, round=table["round"] + 1))
    return evaluation
