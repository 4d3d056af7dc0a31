"""Runs attacks over a recording, on the clients of each round or on all messages together, and scores them."""

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from attacks.base import Attack
from datamodules.recordings.joined_view import joined_view
from datamodules.recordings.recording import Recording
from evaluation.attack_bar import AttackBar
from evaluation.message_selection import MessageSelection, message_truth, selected
from evaluation.runner import Evaluation, attack_view, joined, unfit
from modules.learners.recorded_learner import recorded_learner
from protocol.errors import InputError
from protocol.metrics import METRICS
from protocol.seeding import generator_for
from protocol.simulators import AnySimulator, MetricSimulator, RankingSimulator
from protocol.view import ServerView, ViewError


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
    slow: Literal["all", "few", "none"] = "all",
    progress: bool = True,
) -> Evaluation:
    """Runs attacks of any scope on a recording and scores them; this opens the ground truth.

    An attack is slow if it has `Attack.audited_victims`.

    Args:
        recording: what the server saw.
        attacks: what to run.
        seed: seed of the attacks' draws.
        setting: the cell that the rows belong to; None for the name of the data, and of a learner other than FNCF.
        victims: attack only so many victims, drawn at random; attacks on all messages together need all.
        limits: see `evaluate`.
        rounds: which rounds, None for all.
        history: see `evaluate`.
        messages: what attacks on all messages together get.
        slow: whether slow attacks run on all clients, on a few of the first round, or not at all.
        progress: show a bar with the time left.
    """
    manifest, learner = recording.manifest, recorded_learner(recording)
    if setting is None:
        setting = {"data": manifest.data["name"]}
        if manifest.learner is not None and manifest.learner["name"] != "fncf":
            setting["learner"] = manifest.learner["name"]
    together = [attack for attack in attacks if attack.scope == "recording"]
    found: list[Evaluation] = []
    if together:
        try:
            view = joined_view(recording, learner=learner, rounds=rounds)
            seen, truth = selected(view, message_truth(recording, view), messages, seed=seed)
            found.append(attack_messages(seen, truth, together, seed=seed, setting=setting, progress=progress))
        except InputError as error:
            if len(together) == len(attacks):
                raise
            found.append(Evaluation(missing={attack.name: error.found for attack in together}))
    single = [attack for attack in attacks if attack.scope == "round"]
    confined = [attack for attack in single if attack.audited_victims is not None and slow != "all"]
    common: dict[str, Any] = {"seed": seed, "setting": setting, "learner": learner, "progress": progress}
    common["history"] = history
    fast = [attack for attack in single if attack not in confined]
    if fast:
        found.append(evaluate(recording, fast, victims=victims, limits=limits, rounds=rounds, **common))
    if confined:
        few = {attack.name: min(attack.audited_victims or 1, victims or sys.maxsize) for attack in confined}
        first = (recording.rounds if rounds is None else rounds)[:1]
        done = evaluate(recording, confined, limits=few, rounds=first, leave_out=slow == "none", **common)
        names = {attack.name: _full_name(attack, attacks) for attack in confined}
        done.missing = {names.get(name, name): reason for name, reason in done.missing.items()}
        found.append(done)
    return joined(found)


def evaluate(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    learner: AnySimulator | None = None,
    victims: int | None = None,
    limits: Mapping[str, int] | None = None,
    victims_per_view: int | None = None,
    rounds: Sequence[int] | None = None,
    history: bool = False,
    leave_out: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Attacks the clients of every round of a recording, one view in memory at a time.

    Args:
        recording: what the server saw.
        attacks: of scope ``round``.
        seed: seed of the attacks' draws and of the choice of victims.
        setting: the cell that the rows belong to.
        learner: the clients' algorithm, where it is known.
        victims: attack only so many, drawn at random; None for all.
        limits: by attack, the most victims to attack in the recording, for attacks too slow for all of them; they are
            drawn at random from the first rounds.
        victims_per_view: most victims attacked at once; None for as many as are fast.
        rounds: which rounds to attack, None for all.
        history: give the attacks what the server saw of the same victims in earlier rounds.
        leave_out: run none, but say which attacks would fit.
        progress: show a bar with the time left.
    """
    victims_per_view = victims_per_view or (256 if isinstance(learner, RankingSimulator | MetricSimulator) else 64)
    chosen = _choose(recording, victims, seed)
    subsets = {name: _few(recording, limit, seed) for name, limit in (limits or {}).items()}
    first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1], learner=learner), None)
    misfits = {} if first is None else _misfits(attacks, first, recording.truth(first))
    if leave_out:
        left = {a: f"it is slow ({a.cost}); add --slow to run it on {a.audited_victims} clients" for a in attacks}
        misfits = {**left, **misfits}
    missing = Evaluation(missing={_full_name(attack, attacks): reason for attack, reason in misfits.items()})
    attacks = [attack for attack in attacks if attack not in misfits]
    found: list[list[Evaluation]] = [[] for _ in attacks]
    attacked, settings = recording.rounds if rounds is None else rounds, recording.round_settings
    work = _work(recording, attacks, attacked, chosen, subsets)
    with AttackBar(work, show=progress and bool(work)) as bar:
        for view in recording.views(
            victims_per_view=victims_per_view, rounds=attacked, pseudonyms=chosen, learner=learner, history=history
        ):
            truth = recording.truth(view)
            for attack, own_scores in zip(attacks, found, strict=True):
                kept = _positions(view, _subset(attack, subsets))
                if len(kept):
                    part = view.select(kept)
                    own = {name: value[kept] for name, value in truth.items()}
                    name, columns = _full_name(attack, attacks), {**setting, **settings.get(view.round, {})}
                    own_scores.append(_run(attack, part, own, seed=seed, setting=columns, bar=bar, name=name))
    return joined([missing, *(one for evaluations in found for one in evaluations)])


def attack_messages(
    view: ServerView,
    truth: Mapping[str, Tensor],
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    progress: bool = True,
) -> Evaluation:
    """Runs attacks on all messages of a recording together and scores them.

    Args:
        view: the messages, see `evaluation.message_selection.selected`.
        truth: ``user`` and ``known_user`` of the messages.
        attacks: what to run.
        seed: of the training, and of the attacks' draws.
        setting: the cell that the rows belong to.
        progress: show a bar with the time left.
    """
    with AttackBar({attack.name: max(view.victims, 1) for attack in attacks}, show=progress) as bar:
        return joined([_run(attack, view, truth, seed=seed, setting=setting, bar=bar) for attack in attacks])


def relevant(evaluation: Evaluation, attacks: Sequence[Attack]) -> Evaluation:
    """Without the reasons why attacks of other families than those that were scored could not run.

    Args:
        evaluation: of all attacks.
        attacks: that were to run.
    """
    families = {line.family for line in evaluation.lines.values()}
    own = {_full_name(attack, attacks) for attack in attacks if attack.family in families}
    own |= {attack.name for attack in attacks if attack.family in families and attack.scope == "recording"}
    kept = {name: reason for name, reason in evaluation.missing.items() if not families or name in own}
    return dataclasses.replace(evaluation, missing=kept)


def metrics_of(attacks: Sequence[Attack]) -> list[str]:
    """Names of what the estimates of some attacks measure, in the order of the table of metrics."""
    measured = {name for attack in attacks for name in attack.estimates.metric_names()}
    return [name for name in METRICS if name in measured]


def people_of(recording: Recording) -> dict[int, int]:
    """By pseudonym the number that a person has under every seed, where the ground truth holds it."""
    people: dict[int, int] = {}
    for view in recording.views(victims_per_view=256):
        truth = recording.truth(view)
        if "clients" in truth:
            people |= dict(zip(view.pseudonyms.tolist(), truth["clients"].tolist(), strict=True))
    return people


def reasons(missing: Mapping[str, str]) -> list[str]:
    """Which attacks could not run and why, a sentence for each reason."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason].append(name)
    return [f"{', '.join(of_reason)} could not run: {reason}." for reason, of_reason in names.items()]


def nothing_scored(missing: Mapping[str, str], attacks: Sequence[Attack]) -> InputError:
    """The error for a recording on which no attack could be scored.

    Args:
        missing: by attack, what it lacks.
        attacks: that were to run.
    """
    baselines = {attack.name for attack in attacks if attack.baseline}

    def distance(name: str) -> tuple[bool, bool, bool, int, int]:
        """What lacks the truth alone is nearest, then what lacks a learner that the manifest may name."""
        reason = missing[name]
        return (
            name in baselines,
            not reason.startswith("without "),
            "lacks learner" not in reason,
            reason.count(","),
            -sum(other == reason for other in missing.values()),
        )

    least = missing[min(missing, key=distance)] if missing else "no victims"
    names = ", ".join(name for name, reason in missing.items() if reason == least)
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=f"none; the nearest is {names}: {least}" if names else least,
        way_out="Say in the recording's manifest which learner the clients run, and keep its truth/"
        " (docs/recording-format.md), or run an attack of your own: attack.py run --attack PACKAGE.CLASS.",
    )


def _misfits(attacks: Sequence[Attack], view: ServerView, truth: Mapping[str, Tensor]) -> dict[Attack, str]:
    """Attacks that cannot run on a recording, and why, by its first view."""
    why = {attack: unfit(attack, view, truth) for attack in attacks}
    return {attack: reason for attack, reason in why.items() if reason is not None}


def _full_name(attack: Attack, others: Iterable[Attack]) -> str:
    """The name, with the family where two attacks share it."""
    shared = sum(other.name == attack.name for other in others) > 1
    return _with_family(attack) if shared else attack.name


def _with_family(attack: Attack) -> str:
    return f"{attack.family}/{attack.name}"


def _run(
    attack: Attack,
    view: ServerView,
    truth: Mapping[str, Tensor],
    *,
    seed: int,
    setting: Mapping[str, Any],
    bar: AttackBar,
    name: str | None = None,
) -> Evaluation:
    """One attack on one view; what it lacks is no error, because others may run."""
    name = name or attack.name
    lacking = unfit(attack, view, truth)
    if lacking is not None:
        bar.leave_out(name)
        return Evaluation(missing={name: lacking})
    try:
        with bar.attacking(name, max(view.victims, 1)):
            label = None if name == attack.name else f"{attack.family}/{attack.label(view)}"
            return attack_view(attack, view, truth, seed=seed, setting=setting, label=label)
    except ViewError as error:
        return Evaluation(missing={name: str(error)})


def _work(
    recording: Recording,
    attacks: Sequence[Attack],
    rounds: Sequence[int],
    chosen: set[int] | None,
    subsets: Mapping[str, set[int]],
) -> dict[str, int]:
    """By attack, how many victims it attacks in all rounds together."""
    everyone = set(recording.pseudonyms())
    groups = {
        _full_name(attack, attacks): (_subset(attack, subsets) or everyone) & (everyone if chosen is None else chosen)
        for attack in attacks
    }
    taking_part = [set(recording.pseudonyms(number)) for number in rounds]
    return {name: sum(len(clients & group) for clients in taking_part) for name, group in groups.items()}


def _choose(recording: Recording, victims: int | None, seed: int) -> set[int] | None:
    if victims is None:
        return None
    everyone = recording.pseudonyms()
    order = torch.randperm(len(everyone), generator=generator_for(seed, "victims"))
    return {everyone[int(position)] for position in order[:victims]}


def _few(recording: Recording, victims: int, seed: int) -> set[int]:
    """Victims of the first rounds, drawn at random within a round: in few views, because slow attacks batch."""
    chosen: list[int] = []
    for number in recording.rounds:
        clients = recording.pseudonyms(number)
        order = torch.randperm(len(clients), generator=generator_for(seed, "victims", number))
        chosen += [clients[int(position)] for position in order if clients[int(position)] not in chosen]
        if len(chosen) >= victims:
            break
    return set(chosen[:victims])


def _subset(attack: Attack, subsets: Mapping[str, set[int]]) -> set[int] | None:
    """The victims to which a table confines an attack, by its name or one of its aliases."""
    return next((subsets[name] for name in (attack.name, *attack.aliases) if name in subsets), None)


def _positions(view: ServerView, subset: set[int] | None) -> Tensor:
    everyone = view.pseudonyms.tolist()
    return torch.tensor([i for i, p in enumerate(everyone) if subset is None or p in subset], dtype=torch.int64)
