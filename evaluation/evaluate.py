"""Evaluation of attacks on a recording, on the clients of each round or on all messages together."""

import dataclasses
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor

from attacks.base import Attack
from client.algorithm import ClientAlgorithm
from client.foltr_es import FOLtRESAlgorithm
from client.matrix_factorization import MFAlgorithm
from client.ranking import RankingAlgorithm
from evaluation.attack_bar import AttackBar
from evaluation.failures import is_unscored, unfit
from evaluation.message_selection import MessageSelection, client_truth, message_truth, selected
from evaluation.runner import AttackError, Evaluation, append, attack_view, joined
from protocol.errors import InputError, ViewError
from protocol.history import History
from protocol.metric_table import METRICS
from protocol.seeding import generator_for
from protocol.view import RoundView, View
from recordings.joined_view import joined_view, messages_view
from recordings.recorded_learner import recorded_learner
from recordings.recording import Recording

TRACEBACKS = "errors.txt"
"""File of the tracebacks of attacks that ended in an exception."""
_SLOW = "it is slow"


Slow = Literal["all", "few", "none"]
"""Clients on whom attacks run that take minutes."""
Unscored = Callable[[RoundView], Tensor | None]
"""Mask ``(V,)`` of a view's victims on whom no attack is scored; None for all to be scored."""


def default_setting(recording: Recording) -> dict[str, Any]:
    """Setting of a recording that is no cell of a table: the name of the data, and of a learner other than FNCF."""
    manifest = recording.manifest
    setting = {"data": manifest.data["name"]}
    if manifest.learner is not None and manifest.learner["name"] != "fncf":
        setting["learner"] = manifest.learner["name"]
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
    progress: bool = True,
) -> Evaluation:
    """Runs attacks of any scope on a recording and scores them against the ground truth.

    Args:
        recording: what the server saw.
        attacks: attacks to run.
        seed: seed of the attacks' draws.
        setting: cell that the scores belong to; None for `default_setting`.
        victims: number of victims, drawn at random; None for all. Attacks on all messages together always get all.
        limits: largest number of victims by attack, drawn at random within the first rounds.
        rounds: rounds to attack, None for all.
        history: whether attacks get the earlier messages of the same victims.
        messages: selection of messages for attacks on all messages together.
        slow: whether slow attacks (with `Attack.audited_victims`) run on all clients, on a few of the first round, or
            not at all.
        unscored: victims of a round that are undefined in the scores of attacks on it.
        separate: whether an attack that ends in an exception is listed as missing, and the others go on.
        progress: whether to show a progress bar.
    """
    learner = recorded_learner(recording)
    setting = default_setting(recording) if setting is None else setting
    together = [attack for attack in attacks if attack.view is History]
    of_devices = [attack for attack in together if {"known", "pairs"} & {*attack.threat_model.needs}]
    of_clients = [attack for attack in together if attack not in of_devices]
    found: list[Evaluation] = []
    last: list[Evaluation] = []  # links and declared privacy, after what was in the updates
    common: dict[str, Any] = {"seed": seed, "setting": setting, "separate": separate, "progress": progress}
    for group in (of_devices, of_clients):
        if not group:
            continue
        try:
            if group is of_devices:
                view = joined_view(recording, learner=learner, rounds=rounds)
                view, truth = selected(view, message_truth(recording, view), messages, seed=seed)
            else:
                view = messages_view(recording, learner=learner, rounds=rounds)
                truth = client_truth(recording, view, {name for attack in group for name in attack.estimates.truth})
            (found if group is of_devices else last).append(attack_messages(view, truth, group, **common))
        except InputError as error:
            if len(group) == len(attacks):
                raise
            reason = f"expected {error.expected}"
            found.append(Evaluation(missing={_full_name(attack, attacks): reason for attack in group}))
    single = [attack for attack in attacks if attack.view is RoundView]
    confined = [attack for attack in single if attack.audited_victims is not None and slow != "all"]
    fast = [attack for attack in single if attack not in confined]
    common |= {"learner": learner, "history": history, "unscored": unscored}
    if fast:
        found.append(evaluate(recording, fast, victims=victims, limits=limits, rounds=rounds, **common))
    if confined:
        few = {attack.name: min(attack.audited_victims or 1, victims or sys.maxsize) for attack in confined}
        first = (recording.rounds if rounds is None else rounds)[:1]
        done = evaluate(recording, confined, limits=few, rounds=first, leave_out=slow == "none", **common)
        names = {attack.name: _full_name(attack, attacks) for attack in confined}
        done.missing = {names.get(name, name): reason for name, reason in done.missing.items()}
        found.append(done)
    return joined([*found, *last])


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
    progress: bool = True,
) -> Evaluation:
    """Runs attacks of scope ``round`` on every round of a recording, with one view in memory at a time.

    The arguments are those of `evaluate_recording`. `learner` simulates the clients where it is known,
    `victims_per_view` bounds the victims that are attacked at once (None for a default by learner), and `leave_out`
    runs no attack but lists as missing those that would fit.
    """
    many = isinstance(learner, RankingAlgorithm | FOLtRESAlgorithm | MFAlgorithm)
    victims_per_view = victims_per_view or (256 if many else 64)
    chosen = None if victims is None else set(_drawn(recording.pseudonyms(), generator_for(seed, "victims"))[:victims])
    limited = {name: _within_first_rounds(recording, limit, seed) for name, limit in (limits or {}).items()}
    subsets = {attack: _subset(attack, limited) for attack in attacks}
    first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1], learner=learner), None)
    misfits: dict[Attack, str] = {}
    if leave_out:
        misfits = {a: f"{_SLOW} ({a.cost}); add --slow to run it on {a.audited_victims} clients" for a in attacks}
    if first is not None:
        reasons_by_attack = {attack: unfit(attack, first, recording.truth(first)) for attack in attacks}
        misfits |= {attack: reason for attack, reason in reasons_by_attack.items() if reason is not None}
    missing = Evaluation(missing={_full_name(attack, attacks): reason for attack, reason in misfits.items()})
    fitting = [attack for attack in attacks if attack not in misfits]
    names = {attack: _full_name(attack, fitting) for attack in fitting}
    found: dict[Attack, list[Evaluation]] = {attack: [] for attack in names}
    attacked, settings = recording.rounds if rounds is None else rounds, recording.round_settings
    everyone = set(recording.pseudonyms())
    present = [set(recording.pseudonyms(number)) & (everyone if chosen is None else chosen) for number in attacked]
    work = {name: sum(len(c & (subsets[attack] or everyone)) for c in present) for attack, name in names.items()}
    with AttackBar(work, show=progress and bool(work)) as bar:
        for view in recording.views(
            victims_per_view=victims_per_view, rounds=attacked, pseudonyms=chosen, learner=learner, history=history
        ):
            truth = recording.truth(view)
            columns = {**setting, **settings.get(view.round, {})}
            masks = [mask for of_step in unscored if (mask := of_step(view)) is not None]
            skipped = torch.stack(masks).any(0) if masks else None
            for attack, name in names.items():
                kept = _positions(view, subsets[attack])
                if len(kept):
                    own = {key: value[kept] for key, value in truth.items()}
                    options: dict[str, Any] = {"bar": bar, "name": name, "separate": separate}
                    options |= {"unscored": None if skipped is None else skipped[kept]}
                    done = _run(attack, view.select(kept), own, seed=seed, setting=columns, **options)
                    append(found[attack], done)
    return joined([missing, *(one for evaluations in found.values() for one in evaluations)])


def attack_messages(
    view: View,
    truth: Mapping[str, Tensor],
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    separate: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Runs attacks on all messages of a recording together and scores them.

    Args:
        view: messages, see `evaluation.message_selection.selected`.
        truth: ``user (V,)`` and ``known_user (P,)`` of the messages.
        attacks: attacks to run.
        seed: seed of the training and of the attacks' draws.
        setting: cell that the scores belong to.
        separate: see `evaluate_recording`.
        progress: whether to show a progress bar.
    """
    options: dict[str, Any] = {"seed": seed, "setting": setting, "separate": separate}
    with AttackBar({attack.name: max(view.victims, 1) for attack in attacks}, show=progress) as bar:
        return joined([_run(attack, view, truth, bar=bar, name=attack.name, **options) for attack in attacks])


def relevant(evaluation: Evaluation, attacks: Sequence[Attack], truth: Collection[str]) -> Evaluation:
    """An evaluation of `attacks` without what does not fit the recording.

    Baselines are left out of which no attack on the same question ran, unless it is slow and was not asked for: alone,
    they say nothing about the updates. Missing attacks are left out if their family does not fit. A family fits if one
    of its attacks was scored, or if the ground truth holds more than the clients' identities to score it; where it can
    score none, families fit that lack nothing else.

    Args:
        evaluation: scores, and the attacks that could not run.
        attacks: attacks that were to run.
        truth: names in the ground truth.
    """
    evaluation = _without_lonely_baselines(evaluation, attacks)
    scored = {line.family for line in evaluation.lines.values()}
    asking = [attack for attack in attacks if set(attack.estimates.truth) - {"clients"}]
    families = {attack.family for attack in asking} & scored
    families |= {attack.family for attack in asking if set(attack.estimates.truth) <= set(truth)}
    fitting = [attack for attack in attacks if attack.family in families | scored]
    own = {name for attack in fitting for name in (_full_name(attack, attacks), attack.name)}
    missing = evaluation.missing.items()
    own |= evaluation.tracebacks.keys()
    kept = {name: reason for name, reason in missing if name in own or (not families and is_unscored(reason))}
    unrelated = {name: reason for name, reason in missing if name not in kept}
    return dataclasses.replace(evaluation, missing=kept, unrelated=evaluation.unrelated | unrelated)


def _without_lonely_baselines(evaluation: Evaluation, attacks: Sequence[Attack]) -> Evaluation:
    """Without the baselines of questions on which attacks were to run and none did."""
    slow = {name for name, reason in evaluation.missing.items() if reason.startswith(_SLOW)}
    asked = {a.estimates.question() for a in attacks if not a.baseline}
    asked -= {a.estimates.question() for a in attacks if slow & {a.name, _full_name(a, attacks)}}
    asked -= {line.question for line in evaluation.lines.values() if line.role != "baseline"}
    lonely = {name for name, line in evaluation.lines.items() if line.role == "baseline" and line.question in asked}
    if not lonely:
        return evaluation

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        return table[~table["attack"].isin(lonely)] if len(table) else table

    def entries(by_label: dict[str, Any]) -> dict[str, Any]:
        return {label: value for label, value in by_label.items() if label.partition(" (")[0] not in lonely}

    return dataclasses.replace(
        evaluation,
        scores=rows(evaluation.scores),
        profiles=rows(evaluation.profiles),
        lines=entries(evaluation.lines),
        roc=entries(evaluation.roc),
        candidates=entries(evaluation.candidates),
        details=entries(evaluation.details),
        unrelated=evaluation.unrelated | dict.fromkeys(sorted(lonely), "no attack on its question ran"),
    )


def truth_names(recording: Recording) -> set[str]:
    """Names in the ground truth of a recording's first round."""
    first = next(recording.views(victims_per_view=1, rounds=recording.rounds[:1]), None)
    return set() if first is None else set(recording.truth(first))


def metrics_of(attacks: Sequence[Attack]) -> list[str]:
    """Names of the metrics of some attacks' estimates, in the order of the table of metrics."""
    measured = {name for attack in attacks for name in attack.estimates.metric_names()}
    return [name for name in METRICS if name in measured]


def reasons(missing: Mapping[str, str]) -> list[str]:
    """One sentence per reason for which attacks could not run."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason].append(name)
    return [f"{', '.join(of_reason)} could not run: {reason}." for reason, of_reason in names.items()]


def nothing_scored(missing: Mapping[str, str], attacks: Sequence[Attack]) -> InputError:
    """Error for a recording on which none of `attacks` could be scored; `missing` holds the reason by attack."""
    baselines = {attack.name for attack in attacks if attack.baseline}

    def distance(name: str) -> tuple[bool, bool, bool, int, int]:
        """Order by what is missing: only the ground truth, then the learner, then fewer and more frequent needs."""
        reason, shared = missing[name], sum(other == missing[name] for other in missing.values())
        without_truth, without_learner = reason.startswith("without "), "lacks learner" in reason
        return name in baselines, not without_truth, not without_learner, reason.count(","), -shared

    least = missing[min(missing, key=distance)] if missing else "no victims"
    names = ", ".join(name for name, reason in missing.items() if reason == least)
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=f"none; the nearest is {names}: {least}" if names else least,
        way_out="Name the clients' learner in the recording's manifest and keep its truth/ (docs/recording-format.md),"
        " or run an attack of your own: attack.py run --attack PACKAGE.CLASS.",
    )


def _full_name(attack: Attack, others: Iterable[Attack]) -> str:
    """Name of an attack, with its family if another attack has the same name."""
    shared = sum(other.name == attack.name for other in others) > 1
    return f"{attack.family}/{attack.name}" if shared else attack.name


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
            return attack_view(attack, view, truth, seed=seed, setting=setting, label=label, unscored=unscored)
    except ViewError as error:
        return Evaluation(missing={name: str(error)})
    except Exception as error:
        if not separate or (isinstance(error, InputError) and not isinstance(error, AttackError)):
            raise
        return Evaluation(missing={name: _defect(error)}, tracebacks={name: traceback.format_exc()})


def _defect(error: Exception) -> str:
    """One line on an exception of an attack."""
    if isinstance(error, InputError):
        return f"{error.found}; {error.way_out[0].lower()}{error.way_out[1:]}".rstrip(".")
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())[:200]
    return (
        f"it ended in {type(error).__name__}: {said} ({Path(place.filename).name}, line {place.lineno}), a defect; "
        f"please report it with {TRACEBACKS}"
    )


def _drawn(clients: Sequence[int], generator: torch.Generator) -> list[int]:
    return [clients[int(position)] for position in torch.randperm(len(clients), generator=generator)]


def _within_first_rounds(recording: Recording, victims: int, seed: int) -> set[int]:
    """Victims drawn round by round: they share few views, which slow attacks process in batches."""
    chosen: dict[int, None] = {}
    for number in recording.rounds:
        clients = _drawn(recording.pseudonyms(number), generator_for(seed, "victims", number))
        chosen |= dict.fromkeys(clients)
        if len(chosen) >= victims:
            break
    return set(list(chosen)[:victims])


def _subset(attack: Attack, subsets: Mapping[str, set[int]]) -> set[int] | None:
    """Victims of an attack with a limit, which is given by name or alias; None without a limit."""
    return next((subsets[name] for name in (attack.name, *attack.aliases) if name in subsets), None)


def _positions(view: RoundView, subset: set[int] | None) -> Tensor:
    everyone = view.pseudonyms.tolist()
    return torch.tensor([i for i, p in enumerate(everyone) if subset is None or p in subset], dtype=torch.int64)
