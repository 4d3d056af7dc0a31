"""Evaluation of attacks on a recording, on the clients of each round or on all messages together."""

import itertools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.client.foltr_es import FOLtRESAlgorithm
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.progress import say_what_starts
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView, View
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.drawn_victims import drawn_victims, in_random_order
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.failures import unfit, unreadable
from fedleak.evaluation.fitting import of_devices_and_clients, together
from fedleak.evaluation.kept_estimates import KeptEstimates
from fedleak.evaluation.message_selection import MessageSelection
from fedleak.evaluation.posterior.posterior import with_posteriors
from fedleak.evaluation.reasons import Reason, slow_reason
from fedleak.evaluation.relevance import full_name
from fedleak.evaluation.runner import AttackError, append, attack_view
from fedleak.evaluation.time_budget import OutOfTimeError, TimeBudget
from fedleak.recordings.control import ControlRecording
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

TRACEBACKS = "errors.txt"
"""File of the tracebacks of attacks that ended in an exception."""


@dataclass(frozen=True)
class Share:
    """Part of an audit: every n-th of its views, or of its pairs of a view and an attack.

    Attributes:
        index: number of the part.
        parts: number of parts, n.
        of_pairs: whether attacks on one view belong to different parts.
    """

    index: int = 0
    parts: int = 1
    of_pairs: bool = False

    def has(self, place: int) -> bool:
        return place % self.parts == self.index


Slow = Literal["all", "few", "none"]
"""Clients on whom attacks run that take minutes."""
Unscored = Callable[[RoundView], Tensor | None]
"""Mask ``(V,)`` of a view's victims on whom no attack is scored; None for all to be scored."""


def default_setting(recording: Recording) -> dict[str, Any]:
    """Setting of a recording that is no cell of a table: its data, a learner other than FNCF, and the control."""
    manifest = recording.manifest
    setting = {"data": manifest.data["name"]}
    if manifest.learner is not None and manifest.learner["name"] != "fncf":
        setting["learner"] = manifest.learner["name"]
    if isinstance(recording, ControlRecording):
        setting["control"] = recording.control
    return setting


def evaluate_recording(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any] | None = None,
    victims: int | None = None,
    limits: Mapping[str, int] | None = None,
    rounds: Sequence[int] | None = None,
    history: bool = False,
    messages: MessageSelection = MessageSelection(),  # noqa: B008 - frozen
    slow: Slow = "all",
    unscored: Sequence[Unscored] = (),
    separate: bool = False,
    estimates_on_disk: KeptEstimates | None = None,
    share: Share = Share(),
    budget: TimeBudget = TimeBudget(None),  # noqa: B008 - without a bound it has no state
    progress: bool = True,
) -> Evaluation:
    """Runs attacks of any scope on a recording and scores them against the ground truth.

    The arguments are those of `evaluation.audit`. Attacks on all messages together get all victims, unless there are
    more than `fedleak.evaluation.drawn_victims.MANY` messages. Victims of a
    round that a mask of `unscored` holds are undefined in the scores of attacks on it. A `share` of the work has no
    posteriors. Exact attacks run first, then those that need less time; one that does not fit into `budget` is missing.
    """
    learner = recorded_learner(recording)
    setting = default_setting(recording) if setting is None else setting
    evaluations: list[Evaluation] = []
    last: list[Evaluation] = []  # links and declared privacy, after what was in the updates
    common: dict[str, Any] = {"seed": seed, "setting": setting, "separate": separate, "progress": progress}
    common |= {"estimates_on_disk": estimates_on_disk, "budget": budget}
    for whole in of_devices_and_clients(attacks):
        group = [attack for place, attack in enumerate(whole) if share.has(place)]
        if not group:
            continue
        try:
            view, truth = together(
                recording, group, messages, learner=learner, rounds=rounds, seed=seed, victims=victims
            )
            group_evaluation = attack_messages(view, truth, group, **common)
            (evaluations if view.known is not None else last).append(group_evaluation)
        except InputError as error:
            if len(whole) == len(attacks):
                raise
            reason = unreadable(recording, group, error)
            evaluations.append(Evaluation(missing={full_name(attack, attacks): reason for attack in group}))
    single = [attack for attack in attacks if attack.view is RoundView]
    confined = [attack for attack in single if attack.audited_victims is not None and slow != "all"]
    fast = [attack for attack in single if attack not in confined]
    common |= {"learner": learner, "history": history, "unscored": unscored, "share": share}

    def slowly(attacks_of_few: Sequence[Attack]) -> list[Evaluation]:
        if not attacks_of_few:
            return []
        few = {attack.name: min(attack.audited_victims or 1, victims or sys.maxsize) for attack in attacks_of_few}
        first = (recording.rounds if rounds is None else rounds)[:1]
        evaluation = evaluate(recording, attacks_of_few, limits=few, rounds=first, leave_out=slow == "none", **common)
        names = {attack.name: full_name(attack, attacks) for attack in attacks_of_few}
        evaluation.missing = {names.get(name, name): reason for name, reason in evaluation.missing.items()}
        return [evaluation]

    exact = slowly([attack for attack in confined if attack.exact])  # they infer most, so they come before the others
    if fast:
        evaluations.append(evaluate(recording, fast, victims=victims, limits=limits, rounds=rounds, **common))
    evaluations += [*exact, *slowly([attack for attack in confined if not attack.exact])]
    if share.parts > 1:
        return joined([*evaluations, *last])
    shuffled = isinstance(recording, ControlRecording) and recording.control == "priors"
    if progress:
        say_what_starts("computing what the updates add to what the server knew")
    return with_posteriors(joined([*evaluations, *last]), seed=seed, shuffled=shuffled)


def evaluate(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    learner: ClientAlgorithm | None = None,
    victims: int | None = None,
    limits: Mapping[str, int] | None = None,
    victims_per_view: int | None = None,
    rounds: Sequence[int] | None = None,
    history: bool = False,
    leave_out: bool = False,
    unscored: Sequence[Unscored] = (),
    separate: bool = False,
    estimates_on_disk: KeptEstimates | None = None,
    share: Share = Share(),
    budget: TimeBudget = TimeBudget(None),  # noqa: B008
    progress: bool = True,
) -> Evaluation:
    """Runs attacks of scope ``round`` on every round of a recording, with one view in memory at a time.

    The arguments are those of `evaluate_recording`. `learner` simulates the clients where it is known,
    `victims_per_view` bounds the victims that are attacked at once (None for a default by learner), and `leave_out`
    does not run slow attacks, but lists as missing those that would fit.
    """
    many = isinstance(learner, RankingAlgorithm | FOLtRESAlgorithm | MFAlgorithm)
    victims_per_view = victims_per_view or (256 if many else 64)
    draws = generator_for(seed, "victims")
    chosen = None if victims is None else drawn_victims(recording, victims, generator=draws, rounds=rounds)
    limited = {name: _within_first_rounds(recording, limit, seed) for name, limit in (limits or {}).items()}
    named = {attack: [name for name in attack.names() if name in limited] for attack in attacks}
    subsets = {attack: limited[names[0]] if names else None for attack, names in named.items()}  # None for no limit
    first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1], learner=learner), None)
    misfits = {attack: slow_reason(attack) for attack in attacks if attack.slow and leave_out}
    if first is not None:
        reasons_by_attack = {attack: unfit(attack, first, recording.truth(first)) for attack in attacks}
        misfits |= {attack: reason for attack, reason in reasons_by_attack.items() if reason is not None}
    missing = Evaluation(missing={full_name(attack, attacks): reason for attack, reason in misfits.items()})
    fitting = [attack for attack in attacks if attack not in misfits]
    names = {attack: full_name(attack, fitting) for attack in fitting}
    by_attack: dict[Attack, list[Evaluation]] = {attack: [] for attack in names}
    attacked, settings = recording.rounds if rounds is None else rounds, recording.round_settings
    everyone = set(recording.pseudonyms())
    present = [set(recording.pseudonyms(number)) & (everyone if chosen is None else chosen) for number in attacked]
    work = {name: sum(len(c & (subsets[attack] or everyone)) for c in present) for attack, name in names.items()}
    costs = {name: attack.cost for attack, name in names.items()}
    late: dict[Attack, float | None] = {}
    with AttackBar(work, costs, show=progress and bool(work), budget=budget) as bar:

        def order(numbered: tuple[int, tuple[Attack, str]]) -> tuple[bool, float]:
            _, (attack, name) = numbered
            seconds = bar.seconds_of(name)
            return not attack.exact, float(work[name]) if seconds is None else seconds

        options: dict[str, Any] = {"victims_per_view": victims_per_view, "rounds": attacked, "learner": learner}
        options |= {} if share.of_pairs else {"share": (share.index, share.parts)}
        for place, view in enumerate(recording.views(pseudonyms=chosen, history=history, **options)):
            truth = recording.truth(view)
            columns = {**setting, **settings.get(view.round, {})}
            masks = [mask for of_step in unscored if (mask := of_step(view)) is not None]
            skipped = torch.stack(masks).any(0) if masks else None
            unfit_now = budget.unfit(bar.needed())
            for number, (attack, name) in sorted(enumerate(names.items()), key=order):
                if attack in late or (share.of_pairs and not share.has(place * len(names) + number)):
                    continue
                subset, people = subsets[attack], view.pseudonyms.tolist()
                places = torch.tensor([i for i, p in enumerate(people) if subset is None or p in subset]).long()
                if len(places):
                    part_truth = {key: value[places] for key, value in truth.items()}
                    part = view.select(places)
                    done_before = estimates_on_disk is not None and estimates_on_disk.has(attack, part)
                    if not done_before and (name in unfit_now or budget.left <= 0):
                        late[attack] = bar.seconds_of_all(name)
                        continue
                    try:
                        evaluation = _run(
                            attack,
                            part,
                            part_truth,
                            seed=seed,
                            setting=columns,
                            bar=bar,
                            name=name,
                            separate=separate,
                            estimates_on_disk=estimates_on_disk,
                            unscored=None if skipped is None else skipped[places],
                        )
                        append(by_attack[attack], evaluation)
                    except OutOfTimeError as error:
                        late[attack] = error.seconds
    missing.missing |= {names[attack]: budget.reason(seconds, attack.cost) for attack, seconds in late.items()}
    in_time = [evaluations for attack, evaluations in by_attack.items() if attack not in late]
    return joined([missing, *itertools.chain.from_iterable(in_time)])


def attack_messages(
    view: View,
    truth: Mapping[str, Tensor],
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    separate: bool = False,
    estimates_on_disk: KeptEstimates | None = None,
    budget: TimeBudget = TimeBudget(None),  # noqa: B008
    progress: bool = True,
) -> Evaluation:
    """Runs attacks on all messages of a recording together and scores them.

    The arguments are those of `fedleak.evaluation.message_selection.selected` and of `evaluate_recording`.
    """
    options: dict[str, Any] = {
        "seed": seed,
        "setting": setting,
        "separate": separate,
        "estimates_on_disk": estimates_on_disk,
    }
    work = {attack.name: max(view.victims, 1) for attack in attacks}
    by_place: dict[int, Evaluation] = {}  # the arguments of an attack may be lists, which have no hash
    with AttackBar(work, {attack.name: attack.cost for attack in attacks}, show=progress, budget=budget) as bar:
        for place, attack in sorted(enumerate(attacks), key=lambda numbered: bar.seconds_of(numbered[1].name) or 0.0):
            late: float | None = None
            try:
                if budget.left > 0 or (estimates_on_disk is not None and estimates_on_disk.has(attack, view)):
                    by_place[place] = _run(attack, view, truth, bar=bar, name=attack.name, **options)
                    continue
            except OutOfTimeError as error:
                late = error.seconds
            by_place[place] = Evaluation(missing={attack.name: budget.reason(late, attack.cost)})
    return joined([by_place[place] for place in range(len(attacks))])


def _run(
    attack: Attack,
    view: View,
    truth: Mapping[str, Tensor],
    *,
    seed: int,
    setting: Mapping[str, Any],
    bar: AttackBar,
    name: str,
    separate: bool,
    estimates_on_disk: KeptEstimates | None = None,
    unscored: Tensor | None = None,
) -> Evaluation:
    """Runs one attack on one view; an attack that does not fit is listed as missing, as is one that fails alone."""
    lacking = unfit(attack, view, truth)
    if lacking is not None:
        bar.leave_out(name)
        return Evaluation(missing={name: lacking})
    try:
        with bar.attacking(name, max(view.victims, 1), view.round if attack.view is RoundView else None):
            label = None if name == attack.name else f"{attack.family}/{attack.label(view)}"
            options: dict[str, Any] = {"seed": seed, "setting": setting, "label": label, "unscored": unscored}
            evaluation = attack_view(attack, view, truth, estimates_on_disk=estimates_on_disk, **options)
        if len(evaluation.scores):
            bar.took(name, float(evaluation.scores["seconds"].iloc[0]))
        return evaluation
    except ViewError as error:
        return Evaluation(missing={name: Reason("misfit", says=str(error))})
    except Exception as error:
        if not separate or (isinstance(error, InputError) and not isinstance(error, AttackError)):
            raise
        return Evaluation(missing={name: _defect(error)}, tracebacks={name: traceback.format_exc()})


def _defect(error: Exception) -> Reason:
    """Reason of an exception of an attack."""
    if isinstance(error, InputError):
        way_out = f"{error.way_out[0].lower()}{error.way_out[1:]}"
        return Reason("defect", way_out=way_out.rstrip("."), says=error.found)
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:200]
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return Reason(
        "defect",
        way_out=f"please report it with {TRACEBACKS}",
        says=f"it ended in {type(error).__name__}: {said} ({where}), a defect",
    )


def _within_first_rounds(recording: Recording, victims: int, seed: int) -> set[int]:
    """Victims drawn round by round: they share few views, which slow attacks process in batches."""
    chosen: dict[int, None] = {}
    for number in recording.rounds:
        clients = in_random_order(recording.pseudonyms(number), generator_for(seed, "victims", number))
        chosen |= dict.fromkeys(clients)
        if len(chosen) >= victims:
            break
    return set(list(chosen)[:victims])
