"""Scores of attacks on anonymity: one row for every user and metric."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack, Estimate, ServerView, ViewError
from attacks.deanonymization.estimates import UNSEEN, IdentityEstimate, MatchingEstimate, asked_pairs
from attacks.metrics import average_precision, precision_at_positives, random_average_precision, top_share
from datamodules.keys import generator_for
from reports.attack_bar import AttackBar
from reports.evaluation import Evaluation, estimated
from reports.results import VictimRow

PerUser = tuple[Tensor, Tensor, dict[str, Tensor]]
"""``(U,)`` numbers of users, how many messages or pairs of theirs were judged, and values by metric."""
INFLUENCE = " influence"
"""Ends the name of values that stand in for a metric's own where an interval is drawn, see `reports.results`."""


def evaluate_identities(
    view: ServerView,
    users: Tensor,
    attacks: Sequence[Attack],
    *,
    seed: int,
    setting: Mapping[str, Any],
    progress: bool = True,
) -> Evaluation:
    """Runs attacks on the messages of a recording and scores them.

    Args:
        view: all messages, see `datamodules.messages.joined_view`.
        users: ``(V + P,)`` the truth: users of the anonymous messages, then of the known ones.
        attacks: what to run.
        seed: of the training, and of the attacks' draws.
        setting: the cell that the rows belong to.
        progress: show a bar with the time left.
    """
    found = Evaluation()
    victims = max(view.victims, 1)
    with AttackBar({attack.name: victims for attack in attacks}, show=progress) as bar:
        for attack in attacks:
            start = time.perf_counter()
            try:
                with bar.attacking(attack.name, victims):
                    estimate = estimated(attack, view, generator_for(seed, attack.name, view.round))
            except ViewError as error:
                found.missing[attack.name] = str(error)
                continue
            seconds = (time.perf_counter() - start) / victims
            found.rows += _rows(attack.name, estimate, view, users, seed, setting, seconds)
    return found


def _rows(
    name: str,
    estimate: Estimate,
    view: ServerView,
    users: Tensor,
    seed: int,
    setting: Mapping[str, Any],
    seconds: float,
) -> list[VictimRow]:
    if isinstance(estimate, MatchingEstimate):
        numbers, judged, metrics = score_matching(estimate, view, users)
    else:
        assert isinstance(estimate, IdentityEstimate)
        numbers, judged, metrics = score_identities(estimate, users[: view.victims])
    return [
        VictimRow(
            *(name, dict(setting), seed, view.round, int(numbers[i]), view.victims, int(judged[i])),
            *(metric, value, seconds),
            influence=float(metrics[metric + INFLUENCE][i]) if metric + INFLUENCE in metrics else None,
        )
        for metric, values in metrics.items()
        if not metric.endswith(INFLUENCE)
        for i, value in enumerate(values.tolist())
    ]


def score_identities(estimate: IdentityEstimate, users: Tensor) -> PerUser:
    """What is said of each known user, who has a message at all (section 6, "Evaluation Metrics").

    ``ap`` is the area under the precision-recall curve over all messages; ``times-chance`` the same divided by the
    mean share of messages that are a user's, the paper's chance level; ``times-random`` divided by what a random order
    of so few messages has in the mean, which is more; ``top1`` and ``top5`` the share of a user's messages for which it
    is the first, or among the first five.

    Args:
        estimate: of V messages.
        users: ``(V,)`` the truth.
    """
    known = torch.isin(users, estimate.users)
    labels = torch.where(known, users, UNSEEN)
    positive = labels[:, None] == estimate.users
    counts = positive.sum(0)
    told = counts > 0
    precision = average_precision(estimate.scores[:, told], positive[:, told])
    total, column = len(users), positive.int().argmax(1)
    chance = (counts[told].double() / total).mean()
    random = random_average_precision(counts[told], total).mean()
    metrics = {"ap": precision, "times-chance": precision / chance, "times-random": precision / random}
    inside = positive.any(1)
    for places in (1, 5):
        hits = top_share(estimate.scores, column, places) * inside
        sums = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, column, hits)
        metrics[f"top{places}"] = sums[told] / counts[told]
    return estimate.users[told], counts[told], metrics


def score_matching(estimate: MatchingEstimate, view: ServerView, users: Tensor) -> PerUser:
    """Average precision over all pairs together, as the mean of what each user's matching pairs contribute to it.

    Each user counts the same. As all users share one ranking, a user's pairs also decide the others' precision: the
    influences are the jackknife's pseudo-values, of the ranking without the pairs that a user has a part in.

    Args:
        estimate: of the pairs that the view asks about.
        view: what was given.
        users: ``(V + P,)`` the truth.
    """
    first, second = users[asked_pairs(view)].T
    match = first == second
    numbers, counts, own = _shared_ranking(estimate.scores, first, match)
    total, whole = len(numbers), own.mean()
    pseudo = []
    for user in numbers.tolist():
        kept = (first != user) & (second != user)
        without = _shared_ranking(estimate.scores[kept], first[kept], match[kept])[2]
        pseudo.append(total * whole - (total - 1) * (without.mean() if len(without) else whole))
    influence = torch.stack(pseudo) if pseudo else own
    chance = match.double().mean()
    found = {"ap": own, "ap" + INFLUENCE: influence}
    return numbers, counts, found | {f"times-chance{name[2:]}": values / chance for name, values in found.items()}


def _shared_ranking(scores: Tensor, first: Tensor, match: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Users with a match ``(U,)``, how many each has, and the mean precision at them, over pairs ranked together."""
    precision = precision_at_positives(scores, match)
    numbers, owner, counts = torch.unique(first[match], return_inverse=True, return_counts=True)
    sums = torch.zeros(len(numbers), dtype=torch.float64).index_add_(0, owner, precision)
    return numbers, counts, sums / counts


def draw_pairs(first: Tensor, second: Tensor, users: Tensor, *, each: int, generator: torch.Generator) -> Tensor:
    """Pairs to be judged: of every message in `first` as many with one of its user as with one of another's.

    Opens the truth, so that both kinds are as many, and must not give it away. The server knows whose some messages
    are and which messages bear one pseudonym. So users are drawn into couples, and every message of either is asked
    about equally many messages of both: whose partners a message has is the same for both users of a couple. Where the
    users are odd in number, three stand in a ring, each asked about itself and the next. The order of the pairs says
    nothing.

    Args:
        first: ``(A,)`` numbers of messages.
        second: ``(B,)`` numbers of messages; none is paired with itself.
        users: the truth, by number of message.
        each: pairs of either kind for each message in `first`; fewer where a user of the couple has fewer messages.
        generator: of the draw.

    Returns:
        ``(M, 2)``, each pair once.
    """
    same = (users[first][:, None] == users[second]) & (first[:, None] != second)
    able = torch.unique(users[first][same.any(1)])
    groups = _groups(able[torch.randperm(len(able), generator=generator)])
    chosen = torch.zeros_like(same)
    for group in groups:
        inside = [same[users[first] == user].sum(1) for user in group.tolist()]
        wanted = min(each, *(int(count.min()) for count in inside))
        for user, decoy in zip(group, group.roll(-1), strict=True):
            rows = (users[first] == user).nonzero().flatten()
            others = (users[second] == decoy).expand(len(rows), -1)
            counts = torch.full((len(rows),), wanted)
            chosen[rows] = _some(same[rows], counts, generator) | _some(others, counts, generator)
    left, right = chosen.nonzero(as_tuple=True)
    pairs = torch.stack([first[left], second[right]], dim=1)
    return pairs[torch.randperm(len(pairs), generator=generator)]


def _groups(users: Tensor) -> list[Tensor]:
    """Couples of users, in a given order, and three together at the end where one would be left; none of one alone."""
    count = len(users) // 2
    if count == 0:
        return []
    groups = [users[2 * place : 2 * place + 2] for place in range(count)]
    groups[-1] = users[2 * (count - 1) :]
    return groups


def _some(choice: Tensor, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """``(A, B)`` bool, of each row so many of its True ones, drawn at random."""
    keys = torch.rand(choice.shape, generator=generator).masked_fill(~choice, -1)
    rank = keys.argsort(dim=1, descending=True).argsort(dim=1)
    return rank < wanted[:, None]
