"""Attacks of a plan on all messages of a recording together."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.view import View
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.attack_run import AttackRun
from fedleak.evaluation.audit_plan import AuditPlan, Job, job_of
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.failures import unreadable
from fedleak.evaluation.fitting import of_devices_and_clients, together
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.time_budget import OutOfTimeError
from fedleak.recordings.recorded_learner import recorded_learner


def message_jobs(plan: AuditPlan) -> Iterator[Job]:
    """The jobs of the attacks on all messages, by group; a group shares one view, whose victims are known later."""
    for number, group in enumerate(of_devices_and_clients(plan.attacks)):
        for attack in group:
            yield job_of(attack, round=None, view=number, victims=0)


def audit_messages(plan: AuditPlan, execution: Execution) -> tuple[list[Evaluation], list[Evaluation]]:
    """Runs the attacks on all messages together.

    Returns:
        The evaluations of attacks that know devices of the adversary's own, which are about the content of updates, and
        those of the others, which are about their senders and are reported last.

    Raises:
        InputError: the plan has no other attacks, and they cannot read the recording.
    """
    of_content: list[Evaluation] = []
    of_senders: list[Evaluation] = []
    learner = recorded_learner(plan.recording)
    for number, group in enumerate(of_devices_and_clients(plan.attacks)):
        attacks = [attack for attack in group if execution.runs(attack, None, number)]
        if not attacks:
            continue
        try:
            view, truth = together(
                plan.recording,
                attacks,
                plan.messages,
                learner=learner,
                rounds=plan.rounds,
                seed=plan.seed,
                victims=plan.victims,
            )
            evaluation = attack_messages(plan, execution, view, truth, attacks)
            if view.known is None:
                of_senders.append(evaluation)
            else:
                of_content.append(evaluation)
        except InputError as error:
            if len(group) == len(plan.attacks):
                raise
            reason = unreadable(plan.recording, attacks, error)
            missing = {full_name(attack, plan.attacks): reason for attack in attacks}
            of_content.append(Evaluation(missing=missing))
    return of_content, of_senders


def attack_messages(
    plan: AuditPlan, execution: Execution, view: View, truth: Mapping[str, Tensor], attacks: Sequence[Attack]
) -> Evaluation:
    """Runs attacks of a plan on one view of all messages together and scores them; those that need less time first."""
    victims = {attack.name: max(view.victims, 1) for attack in attacks}
    costs = {attack.name: attack.cost for attack in attacks}
    evaluations = [Evaluation() for _ in attacks]
    with AttackBar(victims, costs, show=execution.progress, budget=execution.budget) as bar:
        attack_run = AttackRun(plan, execution, bar)
        # They run by the time that they need, and are reported in the order of the plan.
        order = sorted(range(len(attacks)), key=lambda number: bar.seconds_of(attacks[number].name) or 0.0)
        for number in order:
            attack = attacks[number]
            seconds_needed: float | None = None
            try:
                if execution.has_time_for(attack, view):
                    evaluations[number] = attack_run.on(attack, attack.name, view, truth, plan.cell)
                    continue
            except OutOfTimeError as error:
                seconds_needed = error.seconds
            reason = execution.budget.reason(seconds_needed, attack.cost)
            evaluations[number] = Evaluation(missing={attack.name: reason})
    return joined(evaluations)
