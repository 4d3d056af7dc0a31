"""Devices singled out by a profile in place of a user's own data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from attacks.estimates import IdentityEstimate
from attacks.registry import find
from datamodules.devices.base import OwnedDataModule
from datamodules.devices.profiles import profile_fit
from evaluation.message_selection import all_messages
from evaluation.runner import Evaluation, infer
from evaluation.scores import Line, concat, with_setting
from experiments.after.step import AfterStep
from protocol.seeding import generator_for

if TYPE_CHECKING:
    from experiments.cell_run import CellRun

_FITTING = 5
"""Devices that an adversary would single out for a profile."""


@dataclass(frozen=True, kw_only=True)
class Profiles(AfterStep):
    """How well the devices fit a profile that an attack finds most like it (deanonymization, section 6.1.1, figure 3).

    ``fit-rank`` is the mean rank, as a share from 0 to 1, that five devices have among all devices by the true share of
    their examples that are of the profile; guessing gives a half. Under this prior there are no users to name, so the
    attacks stand here and not among the table's.

    Attributes:
        attacks: by name, their arguments.
    """

    name: ClassVar[str] = "profiles"
    metrics: ClassVar[tuple[str, ...]] = ("fit-rank",)
    attacks: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses attacks that there are none of."""
        for name in self.attacks:
            find(name)

    def __call__(self, run: "CellRun", evaluation: Evaluation) -> Evaluation:
        view, truth = all_messages(run.recording)
        _, data = run.build()
        assert isinstance(data, OwnedDataModule)
        fit = profile_fit(data.device_split.anonymous, data.profile_members())
        devices = torch.unique(truth["user"])
        ranks = fit[devices].argsort(0).argsort(0).double() / max(len(devices) - 1, 1)
        for name, arguments in self.attacks.items():
            attack = find(name)(**arguments)
            label = attack.label(view)
            estimate = infer(attack, view, generator_for(run.cell.seed, label, view.round))
            assert isinstance(estimate, IdentityEstimate)
            means = torch.stack([estimate.scores[truth["user"] == device].double().mean(0) for device in devices])
            chosen = means.topk(min(_FITTING, len(devices)), dim=0).indices
            values = ranks[chosen, estimate.users].T.contiguous().mean(1)
            names = [data.device_split.profiles[profile] for profile in estimate.users.tolist()]
            scores = run.scores(label, {"fit-rank": values}, victims=estimate.users, round=view.round)
            evaluation.scores = concat([evaluation.scores, with_setting(scores, profile=names)])
            evaluation.lines[label] = Line.of(attack, view)
        return evaluation
