"""Evaluation of a plan: its attacks, on the clients of each round or on all messages together, and their scores."""

from collections.abc import Iterator

from fedleak.core.progress import say_what_starts
from fedleak.evaluation.audit_plan import AuditPlan, Job
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.message_audit import audit_messages, message_jobs
from fedleak.evaluation.posterior.posterior import with_posteriors
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.round_audit import RoundAudit, round_groups
from fedleak.recordings.control import ControlRecording


def jobs_of(plan: AuditPlan) -> Iterator[Job]:
    """The jobs of a plan: each attack on each view that it fits."""
    yield from message_jobs(plan)
    for group in round_groups(plan):
        yield from RoundAudit(plan, group).jobs()


def evaluate_recording(plan: AuditPlan, execution: Execution | None = None) -> Evaluation:
    """Runs the attacks of a plan and scores them against the ground truth.

    Steps, and what describes the recording, are not part of it; see `fedleak.evaluation.auditing.run_audit`.

    Attacks on all messages together get all victims, unless there are more than
    `fedleak.evaluation.drawn_victims.MANY` messages. A part of the plan has no posteriors.

    Args:
        plan: what to run.
        execution: how to run it here; None for all of it, with a progress bar.

    Raises:
        InputError: the recording is damaged.
    """
    execution = execution or Execution()
    of_content, of_senders = audit_messages(plan, execution)
    on_all: list[Evaluation] = []
    on_few: list[Evaluation] = []
    for group in round_groups(plan):
        evaluation = RoundAudit(plan, group).run(execution)
        # Among the attacks of the plan, more names may be shared than among those of the group.
        names = {attack.name: full_name(attack, plan.attacks) for attack in group.attacks}
        evaluation.missing = {names.get(name, name): reason for name, reason in evaluation.missing.items()}
        if group.on_few:
            on_few.append(evaluation)
        else:
            on_all.append(evaluation)
    # Exact attacks on a few clients ran first; results start with the attacks on all clients.
    evaluation = joined([*of_content, *on_all, *on_few, *of_senders])
    if execution.of_a_part:
        return evaluation
    shuffled = isinstance(plan.recording, ControlRecording) and plan.recording.control == "priors"
    if execution.progress:
        say_what_starts("computing what the updates add to what the server knew")
    return with_posteriors(evaluation, seed=plan.seed, shuffled=shuffled)
