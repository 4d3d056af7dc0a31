"""Steps on deanonymization: texts instead of deltas, maps, users' biases, devices that fit a profile, and utility.

The paper is Orekondy, Oh, Zhang, Schiele and Fritz, "Gradient-Leaks: Understanding and Controlling Deanonymization in
Federated Learning", 2018, arXiv:1805.05838.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize
from torch import Tensor

from fedleak.attacks.re_identification.estimates import UNSEEN, IdentityEstimate
from fedleak.attacks.re_identification.messages import layer_vectors, unit
from fedleak.core.scoring import average_precision
from fedleak.core.seeding import generator_for
from fedleak.datamodules.devices.base import OwnedDataModule, Pooled
from fedleak.datamodules.devices.profiles import profile_fit
from fedleak.evaluation.attack_line import line_of
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.message_selection import all_messages
from fedleak.evaluation.registry import find
from fedleak.evaluation.runner import infer
from fedleak.evaluation.scores import with_setting
from fedleak.reports.figures.maps import bias_figure, map_figure
from fedleak.tables.after.model_quality import RECORDED
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun

_SETS = (1, 4, 16, 64, 256)
"""Numbers of examples in a set (figure 10)."""
_SETS_PER_USER = 20
_SHOWN = 8
"""Number of users in a figure."""
_FITTING = 5
"""Number of devices that an adversary selects for a profile."""
_TESTED_AT_ONCE = 256
CENTRAL = "central-model"
"""Label of centralised training."""


@dataclass(frozen=True, kw_only=True)
class RawData(AfterStep):
    """Re-identification from sets of an anonymous device's texts instead of its deltas (section 6.1.6, figure 10).

    The paper trains a MobileNet on known photographs and averages its features over a set. For texts, the equivalent is
    a linear classifier of words, applied to the mean word features of a set.
    """

    name = "raw-data"
    metrics = ("ap", "times-chance")

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        data = _owned(run)
        split = data.device_split
        features = _word_features(data.examples.features)
        seed = run.seed
        # The classifier learns from the known devices' texts; users without either kind of device are left out.
        users = [user for user, part in enumerate(split.known) if len(part) and len(split.anonymous[user])]
        training_examples = torch.cat([split.known[user] for user in users])
        owners = torch.cat([torch.full((len(split.known[user]),), user) for user in users])
        classifier = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=seed)
        classifier.fit(features[training_examples.numpy()], owners.numpy())
        truth = torch.tensor(users).repeat_interleave(_SETS_PER_USER)
        positive = truth[:, None] == torch.from_numpy(classifier.classes_)
        for size in _SETS:
            generator = generator_for(seed, "sets of examples", size)
            sums = []
            for user in users:
                for _ in range(_SETS_PER_USER):
                    sums.append(_sum_of(features, split.anonymous[user], size, generator))
            # The mean features of a set, up to their length, which is normalised.
            probabilities = torch.from_numpy(classifier.predict_proba(normalize(np.stack(sums))))
            values = average_precision(probabilities, positive)
            metrics = {"ap": values, "times-chance": values * len(users)}  # guessing has a precision of 1 / users
            setting = {"examples_in_a_set": size}
            last = run.recording.rounds[-1]
            yield run.scores("raw-examples", metrics, victims=classifier.classes_, round=last, setting=setting)


@dataclass(frozen=True, kw_only=True)
class Maps(AfterStep):
    """Figure with t-SNE maps of a few users' deltas and raw texts (figure 11).

    Attributes:
        layers: layers whose deltas are mapped.
    """

    name = "maps"
    layers: tuple[str, ...] = ("lstm",)

    def rows(self, run: CellRun, evaluation: Evaluation) -> list[pd.DataFrame]:
        view, truth = all_messages(run.recording)
        data = _owned(run)
        users = truth["user"]
        shown = torch.unique(users)[:_SHOWN]
        inside = torch.isin(users, shown)
        vectors = unit(layer_vectors(view, self.layers))
        deltas = unit(vectors - vectors.mean(0))[inside]
        parts = []
        of_parts = []
        for user in shown:
            texts = data.device_split.anonymous[int(user)][: 5 * _SETS_PER_USER]
            parts.append(texts)
            of_parts.append(torch.full((len(texts),), int(user)))
        raw = torch.from_numpy(_word_features(data.examples.features[torch.cat(parts)]).toarray())
        owners = torch.cat(of_parts)
        maps = {"deltas": (deltas, users[inside]), "raw examples": (raw, owners)}
        evaluation.figures.append(map_figure(maps, run.setting, seed=run.seed))
        return []


@dataclass(frozen=True, kw_only=True)
class UserBias(AfterStep):
    """Correlation of users' biases: how far each word's row of the last layer moves, relative to all users (figure 9).

    ``bias-correlation`` is between a user's known and anonymous device, ``bias-correlation-others`` between its known
    device and other users' anonymous devices.

    Attributes:
        parameter: matrix with a row per word.
    """

    name = "user-bias"
    metrics = ("bias-correlation", "bias-correlation-others")
    parameter: str = "output.weight"

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        view, truth = all_messages(run.recording)
        assert view.known is not None
        anonymous_norms = _log_norms(view.deltas[self.parameter])
        known_norms = _log_norms(view.known.deltas[self.parameter])
        users = truth["user"]
        known_users = truth["known_user"]
        users_of_both = [user for user in torch.unique(users).tolist() if user in known_users]
        # A user's bias is its mean log norm of each word, less the mean of all users.
        known_means = torch.stack([known_norms[known_users == user].mean(0) for user in users_of_both])
        anonymous_means = torch.stack([anonymous_norms[users == user].mean(0) for user in users_of_both])
        biases = [known_means - known_means.mean(0), anonymous_means - anonymous_means.mean(0)]
        # Of all correlations, those between a known (row) and an anonymous device (column).
        count = len(users_of_both)
        all_correlations = torch.corrcoef(torch.cat(biases))
        across = all_correlations[:count, count:]
        same_user = across.diagonal()
        with_others = (across.sum(1) - same_user) / max(count - 1, 1)
        evaluation.figures.append(bias_figure(biases[0][:_SHOWN], biases[1][:_SHOWN], run.setting))
        correlations = {"bias-correlation": same_user, "bias-correlation-others": with_others}
        yield run.scores("user-bias", correlations, victims=users_of_both, round=view.round)


@dataclass(frozen=True, kw_only=True)
class Profiles(AfterStep):
    """Fit of the devices that an attack selects for a profile instead of a user (section 6.1.1, figure 3).

    ``fit-rank`` is the mean rank of the five selected devices among all devices, as a share from 0 to 1, by the true
    share of their examples that match the profile; guessing gives 0.5. There are no users to identify under this prior,
    so the attacks are options of the step and not attacks of the table.

    Attributes:
        attacks: arguments by name of the attack.
    """

    name = "profiles"
    metrics = ("fit-rank",)
    attacks: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks the attacks' names."""
        for name in self.attacks:
            find(name)

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        view, truth = all_messages(run.recording)
        data = _owned(run)
        fit = profile_fit(data.device_split.anonymous, data.profile_members(data.examples))
        devices = torch.unique(truth["user"])
        # Rank of each device by its fit to each profile, from 0 to 1.
        ranks = fit[devices].argsort(0).argsort(0).double() / max(len(devices) - 1, 1)
        for name, arguments in self.attacks.items():
            attack = find(name)(**arguments)
            label = attack.label(view)
            estimate = infer(attack, view, generator_for(run.seed, label, view.round))
            assert isinstance(estimate, IdentityEstimate)
            means = []
            for device in devices:
                means.append(estimate.scores[truth["user"] == device].double().mean(0))
            is_profile = estimate.users != UNSEEN
            chosen = torch.stack(means).topk(min(_FITTING, len(devices)), dim=0).indices[:, is_profile]
            profiles = estimate.users[is_profile]
            values = ranks[chosen, profiles].T.contiguous().mean(1)
            names = [data.device_split.profiles[profile] for profile in profiles.tolist()]
            evaluation.lines[label] = line_of(attack, view)
            scores = run.scores(label, {"fit-rank": values}, victims=profiles, round=view.round)
            yield with_setting(scores, profile=names)


@dataclass(frozen=True, kw_only=True)
class Quality(AfterStep):
    """The learner's own metric on each user's held-out examples (deanonymization, table 2).

    Attributes:
        central: epochs of centralised training on all devices' examples for comparison; None for none.
    """

    name = "quality"
    metrics = ("top5", "mae", "ap-labels")
    central: int | None = None

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        module, data = run.build()
        assert isinstance(data, OwnedDataModule)
        module.load_state_dict(run.recording.model(run.recording.rounds[-1]), strict=False)
        yield _user_quality(run, RECORDED, module, data)
        if self.central is not None:
            overrides = {"trainer.max_steps": self.central, "model.defenses": []}
            central, _ = run.train(overrides, data=Pooled(data))
            yield _user_quality(run, CENTRAL, central, data)


def _user_quality(run: CellRun, label: str, module: Any, data: OwnedDataModule) -> pd.DataFrame:
    module.eval()
    tested = {user: numbers for user, numbers in enumerate(data.device_split.test) if len(numbers)}
    values = []
    # The metric of one user at a time, over batches of its held-out examples.
    for numbers in tested.values():
        module.quality.reset()
        with torch.no_grad():
            for part in torch.split(numbers, _TESTED_AT_ONCE):
                module.update_metrics(data.fields(part))
        values.append(float(module.quality.compute()))
    examples = [len(numbers) for numbers in tested.values()]
    last = run.recording.rounds[-1]
    return run.scores(label, {module.metric: values}, victims=list(tested), round=last, items=examples)


def _owned(run: CellRun) -> OwnedDataModule:
    _, data = run.build()
    assert isinstance(data, OwnedDataModule)
    return data


def _word_features(tokens: Tensor) -> csr_array:
    """``(N, W)`` TF-IDF features of unit length, without padding and unknown words."""
    text, position = (tokens > 1).nonzero(as_tuple=True)
    words = tokens[text, position].int().numpy()
    width = int(tokens.max()) + 1
    texts = text.int().numpy()
    counts = csr_array((np.ones(len(words)), (texts, words)), shape=(len(tokens), width))
    # Number of texts that have each word: pairs of text and word, each once.
    pairs = np.unique(text.numpy() * width + words)
    document_counts = np.bincount(pairs % width, minlength=width)
    # idf = log((1 + N) / (1 + df)), so that a word of all texts counts nothing.
    rarity = np.log((1 + len(tokens)) / (1 + document_counts))
    return csr_array(normalize(counts.multiply(rarity[None]).tocsr()))


def _sum_of(features: csr_array, part: Tensor, size: int, generator: torch.Generator) -> npt.NDArray[np.float64]:
    """``(W,)`` sum of the features of `size` examples drawn at random."""
    drawn = part[torch.randperm(len(part), generator=generator)[:size]]
    return np.asarray(features[drawn.numpy()].sum(0), dtype=np.float64).reshape(-1)


def _log_norms(delta: Tensor) -> Tensor:
    """``(V, K)`` log norm of each row of a matrix ``(V, K, H)``, relative to the mean row."""
    norms = torch.linalg.vector_norm(delta, dim=2)
    # The small number keeps the logarithm of a row that did not move finite.
    relative: Tensor = (norms / norms.mean(1, keepdim=True) + 1e-3).log()
    return relative
