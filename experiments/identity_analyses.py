"""What else of a recording is looked at: raw data in place of deltas, users' biases, maps, and kinds of people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize
from torch import Tensor

from attacks.base import Attack
from attacks.deanonymization.messages import layer_vectors, unit
from attacks.estimates import IdentityEstimate
from attacks.metrics import average_precision
from datamodules.owned import OwnedDataModule
from datamodules.profiles import profile_fit
from evaluation.runner import Evaluation, infer
from evaluation.scores import Line, concat, score_table, with_setting
from protocol.seeding import generator_for
from protocol.view import ServerView
from reports.identity_figures import bias_figure, map_figure

_SETS = (1, 4, 16, 64, 256)
"""Examples in a set (figure 10)."""
_SETS_PER_USER = 20
_SHOWN = 8
"""Users in a figure (figures 9 and 11)."""
_FITTING = 5
"""Devices that an adversary would single out for a profile."""


@dataclass(frozen=True)
class Material:
    """What an analysis is given; it may look at everything, as an evaluation may.

    Attributes:
        view: all messages.
        truth: ``user (V,)`` of the messages and ``known_user (P,)`` of the known devices'.
        source: the devices' data.
        layers: whose deltas are taken.
        attacks: of the table.
        seed: of the draws.
        setting: of the cell.
    """

    view: ServerView
    truth: Mapping[str, Tensor]
    source: OwnedDataModule
    layers: Sequence[str]
    attacks: Sequence[Attack]
    seed: int
    setting: Mapping[str, Any]

    def scores(self, label: str, metrics: Mapping[str, ArrayLike], users: ArrayLike, **setting: Any) -> pd.DataFrame:
        """Rows of some users; keywords are further keys of the setting."""
        whole = {**self.setting, **setting}
        return score_table(label, metrics, setting=whole, seed=self.seed, victims=users, round=self.view.round)


def raw_data(material: Material) -> Evaluation:
    """A classifier of the raw texts, asked about sets of an anonymous device's texts (section 6.1.6, figure 10).

    The paper trains a MobileNet on known photographs and takes the mean of its features over a set; of texts, whose
    words are the features, that is a linear classifier of the words and the mean of the words of a set.
    """
    source = material.source
    split, features = source.device_split, _words(source.examples.features)
    users = [user for user, part in enumerate(split.known) if len(part) and len(split.anonymous[user])]
    known = torch.cat([split.known[user] for user in users])
    owners = torch.cat([torch.full((len(split.known[user]),), user) for user in users])
    machine = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=material.seed)
    machine.fit(features[known.numpy()], owners.numpy())
    found = []
    for size in _SETS:
        generator = generator_for(material.seed, "sets of examples", size)
        parts = [split.anonymous[user] for user in users]
        asked = np.stack([_sum_of(features, part, size, generator) for part in parts for _ in range(_SETS_PER_USER)])
        scores = torch.from_numpy(machine.predict_proba(normalize(asked)))
        truth = torch.tensor(users).repeat_interleave(_SETS_PER_USER)
        positive = truth[:, None] == torch.from_numpy(machine.classes_)
        values = average_precision(scores, positive)
        metrics = {"ap": values, "times-chance": values * len(users)}
        found.append(material.scores("raw-examples", metrics, machine.classes_, examples_in_a_set=size))
    return Evaluation(concat(found))


def user_bias(material: Material) -> Evaluation:
    """By how much each word's row of the last layer moves, of a user's known and anonymous device (figure 9).

    ``bias-correlation`` is that of a user's two devices over the words, after what all users share is taken out;
    ``bias-correlation-others`` that of its known device with other users' anonymous ones.
    """
    view = material.view
    assert view.known is not None
    name = material.layers[0] if material.layers[0] in view.deltas else f"{material.layers[0]}.weight"
    own, known = (_log_norms(one.deltas[name]) for one in (view, view.known))
    truth, known_users = material.truth["user"], material.truth["known_user"]
    both = [user for user in torch.unique(truth).tolist() if user in known_users]
    means = [
        torch.stack([values[owner == user].mean(0) for user in both])
        for values, owner in ((known, known_users), (own, truth))
    ]
    biases = [value - value.mean(0) for value in means]
    alike = torch.corrcoef(torch.cat(biases))[: len(both), len(both) :]
    others = (alike.sum(1) - alike.diagonal()) / max(len(both) - 1, 1)
    correlations = {"bias-correlation": alike.diagonal(), "bias-correlation-others": others}
    figure = bias_figure(biases[0][:_SHOWN], biases[1][:_SHOWN], material.setting)
    return Evaluation(material.scores("user-bias", correlations, both), figures=[figure])


def maps(material: Material) -> Evaluation:
    """t-SNE of messages and of raw texts of a few users (figure 11)."""
    view, users = material.view, material.truth["user"]
    shown = torch.unique(users)[:_SHOWN]
    inside = torch.isin(users, shown)
    vectors = unit(layer_vectors(view, material.layers))
    deltas = unit(vectors - vectors.mean(0))[inside]
    source = material.source
    parts = [source.device_split.anonymous[int(user)][: 5 * _SETS_PER_USER] for user in shown]
    raw = torch.from_numpy(_words(source.examples.features[torch.cat(parts)]).toarray())
    owners = torch.cat([torch.full((len(part),), int(user)) for part, user in zip(parts, shown, strict=True)])
    places = {"deltas": (deltas, users[inside]), "raw examples": (raw, owners)}
    return Evaluation(figures=[map_figure(places, material.setting, seed=material.seed)])


def kinds_of_people(material: Material) -> Evaluation:
    """Devices singled out by a profile in place of a user's own data (section 6.1.1, figure 3).

    ``fit-rank`` is the mean rank, as a share from 0 to 1, that the five devices which an attack finds most like a
    profile have among all devices by the true share of their examples that are of it; guessing gives a half.
    """
    view, source = material.view, material.source
    fit = profile_fit(source.device_split.anonymous, source.profile_members())
    truth = material.truth["user"]
    devices = torch.unique(truth)
    ranks = fit[devices].argsort(0).argsort(0).double() / max(len(devices) - 1, 1)
    found = Evaluation()
    for attack in material.attacks:
        label = attack.label(view)
        estimate = infer(attack, view, generator_for(material.seed, label, view.round))
        assert isinstance(estimate, IdentityEstimate)
        means = torch.stack([estimate.scores[truth == device].double().mean(0) for device in devices])
        chosen = means.topk(min(_FITTING, len(devices)), dim=0).indices
        values = ranks[chosen, estimate.users].T.contiguous().mean(1)
        names = [source.device_split.profiles[profile] for profile in estimate.users.tolist()]
        scores = material.scores(label, {"fit-rank": values}, estimate.users)
        found.scores = concat([found.scores, with_setting(scores, profile=names)])
        found.lines[label] = Line.of(attack, view)
    return found


ANALYSES: dict[str, Callable[[Material], Evaluation]] = {
    "raw-data": raw_data,
    "user-bias": user_bias,
    "maps": maps,
    "profiles": kinds_of_people,
}
INSTEAD = "profiles"
"""The analysis that stands in place of naming users: under that prior there are none to name."""


def _words(tokens: Tensor) -> csr_array:
    """``(N, W)`` words of texts weighed by rarity, each text of length one; no padding and no unknown word."""
    text, place = (tokens > 1).nonzero(as_tuple=True)
    words, width = tokens[text, place].int().numpy(), int(tokens.max()) + 1
    counts = csr_array((np.ones(len(words)), (text.int().numpy(), words)), shape=(len(tokens), width))
    spread = np.bincount(np.unique(text.numpy() * width + words) % width, minlength=width)
    rarity = np.log((1 + len(tokens)) / (1 + spread))
    return csr_array(normalize(counts.multiply(rarity[None]).tocsr()))


def _sum_of(features: csr_array, part: Tensor, size: int, generator: torch.Generator) -> npt.NDArray[np.float64]:
    """``(W,)``, of as many examples drawn at random; its length is lost when it is normalised."""
    drawn = part[torch.randperm(len(part), generator=generator)[:size]]
    return np.asarray(features[drawn.numpy()].sum(0), dtype=np.float64).reshape(-1)


def _log_norms(delta: Tensor) -> Tensor:
    """``(V, K)`` how far each row of a matrix ``(V, K, H)`` moved, over the mean row, in log."""
    norms = torch.linalg.vector_norm(delta, dim=2)
    relative: Tensor = (norms / norms.mean(1, keepdim=True) + 1e-3).log()
    return relative
