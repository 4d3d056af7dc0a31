"""Runs attacks over a recording and scores them: the only place that opens the truth."""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from attacks.base import Attack, LocalLearner, ServerView, ViewError
from attacks.interactions.popularity import POPULARITY
from attacks.metrics import bootstrap
from datamodules.deltas import Recording
from datamodules.keys import generator_for
from reports.papers import paper_value
from reports.results import Profile, Result, VictimRow
from reports.scoring import ROC_GRID, TRUTH, Scores, score


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
    names = [attack.name for attack in attacks]
    attacked = recording.rounds if rounds is None else rounds
    taking_part = [set(recording.pseudonyms(number)) for number in attacked]
    total = sum(len(clients if chosen is None else clients & chosen) for clients in taking_part)
    with tqdm(total=total, desc="attack " + ", ".join(names), unit="victim", disable=not progress) as bar:
        views = recording.views(
            victims_per_view=victims_per_view, rounds=attacked, pseudonyms=chosen, learner=learner, history=history
        )
        for view in views:
            truth = recording.truth(view)
            for attack in attacks:
                kept = _positions(view, subsets.get(attack.name))
                if len(kept):
                    of_kept = {name: value[kept] for name, value in truth.items()}
                    _attack(attack, _part(view, kept), of_kept, counts, seed, setting, result, roc)
            bar.update(view.victims)
    result.roc = {name: mean.value() for name, mean in roc.items() if mean.count}
    return result


def summarise(rows: Sequence[VictimRow], *, seed: int = 0) -> list[Result]:
    """One cell per attack, setting and metric; rounds and seeds of a victim are averaged before victims are drawn.

    Args:
        rows: the victims' scores.
        seed: seed of the bootstrap.
    """
    cells: dict[tuple[str, str, str], list[VictimRow]] = defaultdict(list)
    for row in rows:
        cells[row.attack, repr(sorted(row.setting.items())), row.metric].append(row)
    return [_summary(cell, seed) for cell in cells.values()]


def _summary(cell: Sequence[VictimRow], seed: int) -> Result:
    values: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in cell:
        values[row.seed, row.victim].append(row.value)
    per_victim = torch.tensor([sum(v) / len(v) for v in values.values()])
    summary = bootstrap(per_victim, generator=generator_for(seed, "bootstrap"))
    first = cell[0]
    return Result(
        attack=first.attack,
        setting=dict(first.setting),
        metric=first.metric,
        mean=summary.mean,
        std=summary.std,
        ci95=(summary.low, summary.high),
        n=summary.n,
        seconds_per_victim=sum(row.seconds for row in cell) / len(cell),
        paper=paper_value(first.attack, first.metric, first.setting),
    )


def _attack(
    attack: Attack,
    view: ServerView,
    truth: Mapping[str, Tensor],
    counts: Mapping[int, int],
    seed: int,
    setting: Mapping[str, Any],
    result: Evaluation,
    roc: Mapping[str, "_Mean"],
) -> None:
    if _reads_popularity(attack) and view.served is not None and "labels" in truth:
        view = dataclasses.replace(view, auxiliary={POPULARITY: _others(view, truth["labels"], counts)})
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        result.missing[attack.name] = f"the recording lacks {', '.join(lacking)}"
        return
    unknown = [name for name in TRUTH.get(attack.estimates, ()) if name not in truth]
    if unknown:
        result.missing[attack.name] = f"without {', '.join(unknown)} in truth/ of the recording it cannot be scored"
        return
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
    """
    start = time.perf_counter()
    generator = generator_for(seed, attack.name, view.round, int(view.pseudonyms[0]) % 2**31)
    estimate = attack(view, generator=generator)
    seconds = (time.perf_counter() - start) / view.victims
    scores = score(estimate, view, truth)
    items, positives = scores.items.tolist(), scores.positives.tolist()
    rows = [
        VictimRow(attack.name, dict(setting), seed, view.round, int(p), items[i], positives[i], metric, value, seconds)
        for metric, values in scores.metrics.items()
        for i, (p, value) in enumerate(zip(view.pseudonyms, values.tolist(), strict=True))
    ]
    return rows, scores


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
