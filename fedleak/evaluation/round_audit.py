"""Attacks of a plan on the clients of each round, with one view in memory at a time."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.client.foltr_es import FOLtRESAlgorithm
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.attack_run import AttackRun
from fedleak.evaluation.audit_plan import AuditPlan, Job, attack_key, job_of, of_all_messages
from fedleak.evaluation.drawn_victims import drawn_victims, in_random_order
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.failures import unfit
from fedleak.evaluation.reasons import Reason, slow_reason
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.runner import append
from fedleak.evaluation.time_budget import OutOfTimeError
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording, ViewPlace

_VICTIMS_PER_VIEW = 64
"""Victims of a view."""
_OF_A_RECOMMENDER = 256
"""Victims of a view of a recommender: they send few numbers each, so that more of them fit into memory."""


@dataclass(frozen=True, kw_only=True)
class RoundGroup:
    """Attacks of a plan that share the rounds and the victims they run on.

    Attributes:
        attacks: the attacks.
        rounds: numbers of the rounds.
        victims: number of clients to attack; None for all.
        limits: largest number of victims by attack.
        on_few: whether the attacks run on a few clients of the first round.
        left_out: whether slow attacks do not run, but are listed as missing if they would fit.
    """

    attacks: Sequence[Attack]
    rounds: Sequence[int]
    victims: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    on_few: bool = False
    left_out: bool = False


def round_groups(plan: AuditPlan) -> list[RoundGroup]:
    """The attacks of a plan on the clients of each round, in the order in which they run; none is empty.

    Exact attacks on a few clients come first: if the time ends, their answers matter most. Other attacks on a few
    clients take minutes and come last.
    """
    single = [attack for attack in plan.attacks if not of_all_messages(attack)]
    on_all, exact_on_few, others_on_few = [], [], []
    for attack in single:
        if attack.audited_victims is None or plan.slow == "all":
            on_all.append(attack)
        elif attack.exact:
            exact_on_few.append(attack)
        else:
            others_on_few.append(attack)
    groups = [
        _on_few_clients(plan, exact_on_few),
        RoundGroup(attacks=on_all, rounds=plan.attacked_rounds, victims=plan.victims, limits=plan.limits),
        _on_few_clients(plan, others_on_few),
    ]
    return [group for group in groups if group.attacks]


def _on_few_clients(plan: AuditPlan, attacks: Sequence[Attack]) -> RoundGroup:
    """Group of attacks on a few clients of the first round."""
    most = plan.victims or sys.maxsize
    few = {attack.name: min(attack.audited_victims or 1, most) for attack in attacks}
    return RoundGroup(
        attacks=attacks,
        rounds=plan.attacked_rounds[:1],
        limits=few,
        on_few=True,
        left_out=plan.slow == "none",
    )


@dataclass
class _Attacked:
    """One attack of a group: whom it attacks, and what came of it so far.

    Attributes:
        attack: the attack.
        name: its name in results, with its family where another attack of the group has the same name.
        victims: pseudonyms of those whom it attacks; None for all.
        evaluations: those of the views so far.
        is_late: whether it does not fit into the time.
        seconds_needed: seconds that it would need for all victims, if it is late; None if that is not known.
    """

    attack: Attack
    name: str
    victims: set[int] | None
    evaluations: list[Evaluation] = field(default_factory=list)
    is_late: bool = False
    seconds_needed: float | None = None

    def positions_among(self, senders: Sequence[int]) -> Tensor:
        """Positions of its victims among the senders of a view."""
        positions = []
        for position, sender in enumerate(senders):
            if self.victims is None or sender in self.victims:
                positions.append(position)
        return torch.tensor(positions, dtype=torch.int64)

    def give_up(self, seconds_needed: float | None) -> None:
        """Leaves the attack out, which does not fit into the time."""
        self.is_late = True
        self.seconds_needed = seconds_needed


class RoundAudit:
    """Run of a group of attacks on every round of a recording, with one view in memory at a time.

    Args:
        plan: the plan that the group is of.
        group: the attacks, and on whom they run.
    """

    def __init__(self, plan: AuditPlan, group: RoundGroup) -> None:
        self.plan = plan
        self.group = group
        self.learner = recorded_learner(plan.recording)
        self.victims_per_view = plan.victims_per_view or _victims_per_view(self.learner)
        self.clients: set[int] | None = None
        if group.victims is not None:
            draws = generator_for(plan.seed, "victims")
            self.clients = drawn_victims(plan.recording, group.victims, generator=draws, rounds=group.rounds)
        misfits = self._misfits()
        self.missing = {full_name(attack, group.attacks): reason for attack, reason in misfits}
        unfitting = [attack for attack, _ in misfits]
        fitting = [attack for attack in group.attacks if attack not in unfitting]
        # Victims of attacks with a limit, by any of the attack's names; the first of them counts.
        limited = {}
        for name, most in group.limits.items():
            limited[name] = within_first_rounds(plan.recording, most, plan.seed)
        self.attacked: list[_Attacked] = []
        for attack in fitting:
            victims = next((limited[name] for name in attack.names() if name in limited), None)
            self.attacked.append(_Attacked(attack, full_name(attack, fitting), victims))

    def _misfits(self) -> list[tuple[Attack, Reason]]:
        """Attacks that lack something in the first round of the recording, or that are slow, with the reason.

        Pairs and no dictionary: the arguments of an attack may be lists, which have no hash.
        """
        recording = self.plan.recording
        first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1], learner=self.learner), None)
        misfits: list[tuple[Attack, Reason]] = []
        for attack in self.group.attacks:
            reason = None if first is None else unfit(attack, first, recording.truth(first))
            if reason is None and attack.slow and self.group.left_out:
                reason = slow_reason(attack)
            if reason is not None:
                misfits.append((attack, reason))
        return misfits

    def jobs(self) -> Iterator[Job]:
        """The jobs of the group: each of its attacks that fit on each view with victims of it."""
        views = self.plan.recording.victims_of_views(
            victims_per_view=self.victims_per_view, rounds=self.group.rounds, pseudonyms=self.clients
        )
        for (number, view), pseudonyms in views:
            for attacked in self.attacked:
                victims = attacked.victims
                count = len(pseudonyms) if victims is None else sum(name in victims for name in pseudonyms)
                if count:
                    yield job_of(attacked.attack, round=number, view=view, victims=count)

    def run(self, execution: Execution) -> Evaluation:
        """Runs the attacks on all views, or those of a part of the plan, and scores them."""
        victims = self._victims_by_attack()
        costs = {attacked.name: attacked.attack.cost for attacked in self.attacked}
        shown = execution.progress and bool(victims)
        with AttackBar(victims, costs, show=shown, budget=execution.budget) as bar:
            attack_run = AttackRun(self.plan, execution, bar)
            for view_place, view in self._views(execution):
                self._attack_view(view, view_place, attack_run)
        # An attack that did not fit into the time for all its victims has no results at all.
        missing = dict(self.missing)
        for attacked in self.attacked:
            if attacked.is_late:
                missing[attacked.name] = execution.budget.reason(attacked.seconds_needed, attacked.attack.cost)
        evaluations = [Evaluation(missing=missing)]
        for attacked in self.attacked:
            if not attacked.is_late:
                evaluations += attacked.evaluations
        return joined(evaluations)

    def _victims_by_attack(self) -> dict[str, int]:
        """Number of victims of each attack in all rounds together, by its name."""
        recording = self.plan.recording
        everyone = set(recording.pseudonyms()) if self.clients is None else self.clients
        senders = [set(recording.pseudonyms(number)) & everyone for number in self.group.rounds]
        counts = {}
        for attacked in self.attacked:
            victims = everyone if attacked.victims is None else attacked.victims
            counts[attacked.name] = sum(len(of_round & victims) for of_round in senders)
        return counts

    def _views(self, execution: Execution) -> Iterator[tuple[ViewPlace, RoundView]]:
        """Views with a job to run, and their places."""
        recording, plan = self.plan.recording, self.plan
        only: set[ViewPlace] | None = None
        if execution.only is not None:
            names = {attack_key(attacked.attack) for attacked in self.attacked}
            only = set()
            for attack_name, number, view_number in execution.only:
                if attack_name in names and number is not None:
                    only.add((number, view_number))
        views = recording.views(
            victims_per_view=self.victims_per_view,
            rounds=self.group.rounds,
            pseudonyms=self.clients,
            learner=self.learner,
            history=plan.history,
            only=only,
        )
        if only is not None:
            # Views are made in the order of their places.
            yield from zip(sorted(only), views, strict=True)
            return
        views_of_round = dict.fromkeys(self.group.rounds, 0)
        for view in views:
            view_place = view.round, views_of_round[view.round]
            views_of_round[view.round] += 1
            yield view_place, view

    def _attack_view(self, view: RoundView, view_place: ViewPlace, attack_run: AttackRun) -> None:
        """Runs the attacks on one view: exact ones first, then those that need less time."""
        recording, execution, bar = self.plan.recording, attack_run.execution, attack_run.bar
        truth = recording.truth(view)
        setting = {**self.plan.cell, **recording.round_settings.get(view.round, {})}
        unscored = self._unscored(view)
        too_slow = execution.budget.unfit(bar.needed())
        senders = view.pseudonyms.tolist()
        for attacked in sorted(self.attacked, key=lambda attacked: self._order(attacked, bar)):
            attack = attacked.attack
            if attacked.is_late or not execution.runs(attack, *view_place):
                continue
            victims = attacked.positions_among(senders)
            if not len(victims):
                continue
            part = view.select(victims)
            # An estimate of an earlier start needs no time.
            in_time = attacked.name not in too_slow and execution.budget.left > 0
            if not in_time and not execution.has_estimate(attack, part):
                attacked.give_up(bar.seconds_of_all(attacked.name))
                continue
            try:
                evaluation = attack_run.on(
                    attack,
                    attacked.name,
                    part,
                    {name: values[victims] for name, values in truth.items()},
                    setting,
                    None if unscored is None else unscored[victims],
                )
            except OutOfTimeError as error:
                attacked.give_up(error.seconds)
            else:
                append(attacked.evaluations, evaluation)

    def _order(self, attacked: _Attacked, bar: AttackBar) -> tuple[bool, float]:
        """Rank of an attack among those on a view; of unknown time, its number of victims decides."""
        seconds = bar.seconds_of(attacked.name)
        if seconds is None:
            seconds = float(bar.victims_of(attacked.name))
        return not attacked.attack.exact, seconds

    def _unscored(self, view: RoundView) -> Tensor | None:
        """``(V,)`` mask of the victims of a view whose scores a step leaves undefined; None for none."""
        masks = []
        for step in self.plan.steps:
            mask = step.unscored(view)
            if mask is not None:
                masks.append(mask)
        if masks:
            return torch.stack(masks).any(0)
        return None


def _victims_per_view(learner: ClientAlgorithm | None) -> int:
    """Victims of a view that fit into memory."""
    is_recommender = isinstance(learner, RankingAlgorithm | FOLtRESAlgorithm | MFAlgorithm)
    if is_recommender:
        return _OF_A_RECOMMENDER
    return _VICTIMS_PER_VIEW


def within_first_rounds(recording: Recording, victims: int, seed: int) -> set[int]:
    """Victims drawn round by round: they share few views, which slow attacks process in batches."""
    chosen: dict[int, None] = {}
    for number in recording.rounds:
        clients = in_random_order(recording.pseudonyms(number), generator_for(seed, "victims", number))
        chosen |= dict.fromkeys(clients)
        if len(chosen) >= victims:
            break
    return set(list(chosen)[:victims])
