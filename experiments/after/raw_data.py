"""A classifier of raw texts in place of an attack on deltas."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize
from torch import Tensor

from attacks.metrics import average_precision
from datamodules.devices.base import OwnedDataModule
from evaluation.runner import Evaluation
from evaluation.scores import concat
from experiments.after.step import AfterStep
from protocol.seeding import generator_for

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

_SETS = (1, 4, 16, 64, 256)
"""Examples in a set (figure 10)."""
SETS_PER_USER = 20


@dataclass(frozen=True, kw_only=True)
class RawData(AfterStep):
    """Asks about sets of an anonymous device's texts (deanonymization, section 6.1.6, figure 10).

    The paper trains a MobileNet on known photographs and takes the mean of its features over a set; of texts, whose
    words are the features, that is a linear classifier of the words and the mean of the words of a set.
    """

    name: ClassVar[str] = "raw-data"
    metrics: ClassVar[tuple[str, ...]] = ("ap", "times-chance")

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        _, data = run.build()
        assert isinstance(data, OwnedDataModule)
        split, features, seed = data.device_split, word_features(data.examples.features), run.cell.seed
        users = [user for user, part in enumerate(split.known) if len(part) and len(split.anonymous[user])]
        known = torch.cat([split.known[user] for user in users])
        owners = torch.cat([torch.full((len(split.known[user]),), user) for user in users])
        machine = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=seed)
        machine.fit(features[known.numpy()], owners.numpy())
        found = [evaluation.scores]
        for size in _SETS:
            generator = generator_for(seed, "sets of examples", size)
            parts = [split.anonymous[user] for user in users]
            asked = np.stack([_sum_of(features, part, size, generator) for part in parts for _ in range(SETS_PER_USER)])
            scores = torch.from_numpy(machine.predict_proba(normalize(asked)))
            truth = torch.tensor(users).repeat_interleave(SETS_PER_USER)
            positive = truth[:, None] == torch.from_numpy(machine.classes_)
            values = average_precision(scores, positive)
            metrics = {"ap": values, "times-chance": values * len(users)}
            setting = {"examples_in_a_set": size}
            last = run.recording.rounds[-1]
            found.append(run.scores("raw-examples", metrics, victims=machine.classes_, round=last, setting=setting))
        evaluation.scores = concat(found)
        return evaluation


def word_features(tokens: Tensor) -> csr_array:
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
