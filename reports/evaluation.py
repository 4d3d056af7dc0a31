"""Runs attacks over a recording and scores them: the only place that opens the truth."""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack, Estimate, EstimateError, LocalLearner, ServerView, ViewError
from attacks.interactions.popularity import POPULARITY
from datamodules.deltas import Recording
from datamodules.keys import generator_for
from errors import InputError
from reports.attack_bar import AttackBar
from reports.results import Profile, VictimRow
from reports.scoring import ROC_GRID, TRUTH, Scores, can_score, score


@dataclass
class Evaluation:
    """What the attacks on a recording scored.

    Attributes:
        rows: one per victim, round, attack and metric.
        roc: by attack, ``(G,)`` mean true-positive rate over the victims at `ROC_GRID`.
        missing: by attack that could not run, what it lacks.
        figures: captions and SVG texts that a cell has beside those of every report.
        profiles: one per victim, round and attack that infers compositions.
    """

    rows: list[VictimRow] = field(default_factory=list)
    roc: dict[str, Tensor] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    figures: list[tuple[str, str]] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)


def told_missing(missing: Mapping[str, str]) -> list[str]:
    """Which attacks could not run and why, a sentence for each reason."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason].append(name)
    return [f"{', '.join(of_reason)} could not run: {reason}." for reason, of_reason in names.items()]


def evaluate(
    recording: Recording,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    learner: LocalLearner | None = None,
    victims: int | None = None,
    limits: Mapping[str, int] | None = None,
    victims_per_view: int = 64,
    rounds: Sequence[int] | None = None,
    history: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Attacks every view of a recording, one view in memory at a time.

    Args:
        recording: what the server saw.
        attacks: what to run.
        seed: seed of the attacks' draws and of the choice of victims.
        setting: the cell that the rows belong to.
        learner: the clients' algorithm, where it is known.
        victims: attack only so many, drawn at random; None for all.
        limits: by attack, the most victims to attack in the recording, for attacks too slow for all of them; they are
            drawn at random from the first rounds.
        victims_per_view: most victims attacked at once.
        rounds: which rounds to attack, None for all.
        history: give the attacks what the server saw of the same victims in earlier rounds.
        progress: show a bar with the time left.
    """
    result = Evaluation()
    chosen = _choose(recording, victims, seed)
    counts = _popularity(recording) if any(_reads_popularity(attack) for attack in attacks) else {}
    subsets = {name: _few(recording, limit, seed) for name, limit in (limits or {}).items()}
    roc = {attack.name: _Mean(len(ROC_GRID)) for attack in attacks}
    attacked = recording.rounds if rounds is None else rounds
    work = _work(recording, attacks, attacked, chosen, subsets)
    with AttackBar(work, show=progress and bool(work)) as bar:
        views = recording.views(
            victims_per_view=victims_per_view, rounds=attacked, pseudonyms=chosen, learner=learner, history=history
        )
        for view in views:
            truth = recording.truth(view)
            for attack in attacks:
                kept = _positions(view, subsets.get(attack.name))
                if len(kept):
                    of_kept = {name: value[kept] for name, value in truth.items()}
                    part = _knowing(attack, _part(view, kept), of_kept, counts)
                    unfit = _unfit(attack, part, of_kept)
                    if unfit is not None:
                        result.missing[attack.name] = unfit
                        bar.leave_out(attack.name)
                        continue
                    with bar.attacking(attack.name, len(kept)):
                        _attack(attack, part, of_kept, seed, setting, result, roc)
    result.roc = {name: mean.value() for name, mean in roc.items() if mean.count}
    return result


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
        attack.name: subsets.get(attack.name, everyone) & (everyone if chosen is None else chosen) for attack in attacks
    }
    taking_part = [set(recording.pseudonyms(number)) for number in rounds]
    return {name: sum(len(clients & group) for clients in taking_part) for name, group in groups.items()}


def _knowing(attack: Attack, view: ServerView, truth: Mapping[str, Tensor], counts: Mapping[int, int]) -> ServerView:
    """The view with how popular its items are, for an attack that knows it."""
    if not _reads_popularity(attack) or view.served is None or "labels" not in truth:
        return view
    return dataclasses.replace(view, auxiliary={POPULARITY: _others(view, truth["labels"], counts)})


def _unfit(attack: Attack, view: ServerView, truth: Mapping[str, Tensor]) -> str | None:
    """Why an attack cannot be run on a recording and scored, None where it can."""
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        return f"the recording lacks {', '.join(lacking)}"
    if not can_score(attack.estimates):
        return f"nothing scores a {attack.estimates.__name__} of single views"
    unknown = [name for name in TRUTH.get(attack.estimates, ()) if name not in truth]
    if unknown:
        return f"without {', '.join(unknown)} in truth/ of the recording it cannot be scored"
    return None


def _attack(
    attack: Attack,
    view: ServerView,
    truth: Mapping[str, Tensor],
    seed: int,
    setting: Mapping[str, Any],
    result: Evaluation,
    roc: Mapping[str, "_Mean"],
) -> None:
    try:
        rows, scores = attack_view(attack, view, truth, seed=seed, setting=setting)
    except ViewError as error:
        result.missing[attack.name] = str(error)
        return
    if scores.roc is not None:
        roc[attack.name].add(scores.roc)
    if scores.profiles is not None:
        result.profiles += [
            Profile(attack.name, dict(setting), seed, view.round, int(p), classes)
            for p, classes in zip(view.pseudonyms, scores.profiles.tolist(), strict=True)
        ]
    result.rows += rows


def estimated(attack: Attack, view: ServerView, generator: torch.Generator) -> Estimate:
    """What an attack infers from a view.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: it is no estimate, e.g. not finite, which numbers of a stranger's recording may cause.
    """
    try:
        return attack(view, generator=generator)
    except EstimateError as error:
        raise InputError(
            expected=f"a recording with numbers that {attack.name} can compute with",
            found=f"an estimate that is none ({error}) in round {view.round}",
            way_out="Look for very large numbers in the recording; if there are none, the attack has a defect.",
        ) from error


def attack_view(
    attack: Attack, view: ServerView, truth: Mapping[str, Tensor], *, seed: int, setting: Mapping[str, Any]
) -> tuple[list[VictimRow], Scores]:
    """Attacks one view and scores it.

    Args:
        attack: what to run.
        view: what the server saw.
        truth: of the same victims.
        seed: seed of the attack's draws.
        setting: the cell that the rows belong to.

    Returns:
        One row per victim and metric, and the scores.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: what the attack says is no estimate.
    """
    start = time.perf_counter()
    generator = generator_for(seed, attack.name, view.round, int(view.pseudonyms[0]) % 2**31)
    estimate = estimated(attack, view, generator)
    seconds = (time.perf_counter() - start) / view.victims
    scores = score(estimate, view, truth)
    items, positives = scores.items.tolist(), scores.positives.tolist()
    people = truth["clients"].tolist() if "clients" in truth else [None] * view.victims
    rows = [
        VictimRow(
            *(attack.name, dict(setting), seed, view.round, int(p), items[i], positives[i], metric, value, seconds),
            person=people[i],
        )
        for metric, values in scores.metrics.items()
        for i, (p, value) in enumerate(zip(view.pseudonyms, values.tolist(), strict=True))
    ]
    return rows, scores


def with_people(rows: Sequence[VictimRow], recording: Recording) -> list[VictimRow]:
    """Rows of pseudonyms with the numbers that their people have under every seed; opens the truth.

    Args:
        rows: whose ``victim`` is a pseudonym of the recording.
        recording: that they are of.
    """
    people: dict[int, int] = {}
    for view in recording.views(victims_per_view=256):
        truth = recording.truth(view)
        if "clients" in truth:
            people |= dict(zip(view.pseudonyms.tolist(), truth["clients"].tolist(), strict=True))
    return [dataclasses.replace(row, person=people.get(row.victim, row.person)) for row in rows]


class _Mean:
    """A running mean of vectors: nothing is kept of a round, so that memory does not grow with rounds."""

    def __init__(self, length: int) -> None:
        self.total = torch.zeros(length, dtype=torch.float64)
        self.count = 0

    def add(self, values: Tensor) -> None:
        """Adds vectors ``(V, length)``."""
        self.total += values.sum(0)
        self.count += len(values)

    def value(self) -> Tensor:
        """The mean, ``(length,)``."""
        return self.total / self.count


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


def _positions(view: ServerView, subset: set[int] | None) -> Tensor:
    everyone = view.pseudonyms.tolist()
    return torch.tensor([i for i, p in enumerate(everyone) if subset is None or p in subset], dtype=torch.int64)


def _part(view: ServerView, kept: Tensor) -> ServerView:
    if len(kept) == view.victims:
        return view
    return dataclasses.replace(
        view,
        pseudonyms=view.pseudonyms[kept],
        example_counts=view.example_counts[kept],
        deltas={name: value[kept] for name, value in view.deltas.items()},
        served=None if view.served is None else view.served[kept],
        lists=None if view.lists is None else view.lists[kept],
        features=None if view.features is None else view.features[kept],
        client_models=None
        if view.client_models is None
        else {name: value[kept] for name, value in view.client_models.items()},
        updates=None if view.updates is None else view.updates[kept],
        earlier=tuple(_part(earlier, kept) for earlier in view.earlier),
    )


def _reads_popularity(attack: Attack) -> bool:
    return f"auxiliary:{POPULARITY}" in attack.threat_model.needs


def _popularity(recording: Recording) -> dict[int, int]:
    """How many users of the first round interacted with each item."""
    counts: dict[int, int] = defaultdict(int)
    for view in recording.views(rounds=recording.rounds[:1]):
        if view.served is None:
            return {}
        labels = recording.truth(view).get("labels")
        if labels is None:
            return {}
        for item in view.served[labels > 0.5].tolist():
            counts[item] += 1
    return counts


def _others(view: ServerView, labels: Tensor, counts: Mapping[int, int]) -> Tensor:
    """``(V, R)`` how many *other* users interacted with each served item."""
    assert view.served is not None
    everyone = torch.tensor([[counts.get(item, 0) for item in row] for row in view.served.tolist()])
    return everyone - (labels[:, : everyone.shape[1]] > 0.5).long()
