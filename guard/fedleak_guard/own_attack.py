"""Attacks of the main package on the own message: what the server could do, done before it can."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedleak_guard.check import Check, Measured, NotMadeError, measured
from fedleak_guard.main_package import main_module
from fedleak_guard.message import Message
from fedleak_guard.noise_tests import private_tensors
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import Array, as_array


class OwnAttack(Check):
    """Base class of checks that run one attack on the own message and compare what it finds with a limit.

    Attributes:
        most: the limit unless the policy has another.
    """

    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    may_lack = True
    limited = True
    most: ClassVar[float] = 0

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        value, sentence = self.attacked(message, policy)
        return measured(value, policy.limits.get(self.name, self.most), sentence)

    @abc.abstractmethod
    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        """What the attack finds, as a number and a sentence.

        Raises:
            NotMadeError: the attack cannot be made here.
        """


def estimate_of(
    path: str,
    message: Message,
    policy: Policy,
    *,
    images: bool = False,
    history: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> Any:
    """Estimate of an attack on the server's view of this client alone.

    Args:
        path: class of the attack.
        message: what is about to leave.
        policy: declares the clip and the noise that the server knows.
        images: whether the attack learns from the own records on which grid records lie, as from the server's images.
        history: whether the attack takes a history.
        arguments: of the attack.

    Raises:
        NotMadeError: the main package is not installed, the message lacks what the attack needs, or it does not fit it.
    """
    module, _, name = path.rpartition(".")
    protocol = main_module("fedleak.core.view")
    errors = main_module("fedleak.core.errors")
    torch = main_module("torch")
    kind = getattr(main_module(module), name)
    if message.received is None:
        raise NotMadeError("the received model is unknown")
    if "view" not in message.memo:
        message.memo["view"] = _view(message, policy, torch, protocol)
    view = message.memo["view"]
    if images and message.records is not None:
        own = torch.from_numpy(np.array(as_array(message.records, where="records")))
        view = dataclasses.replace(view, auxiliary={"images": own})
    if history:
        histories = main_module("fedleak.core.history")
        view = histories.History(**view.common(), sent_in=torch.tensor([message.round]), by_round={message.round: view})
    try:
        return kind(**(arguments or {}))(view, generator=torch.Generator().manual_seed(0))
    except errors.ViewError as error:
        raise NotMadeError(" ".join(str(error).split())) from None


def _view(message: Message, policy: Policy, torch: Any, protocol: Any) -> Any:
    """`fedleak.core.view.RoundView` of one client."""
    releases: tuple[Any, ...] = ()
    privacy = policy.privacy
    if privacy is not None:
        declared = {"clip": privacy.clip, "noise_scale": privacy.noise or 0.0, "neighbours": privacy.neighbours}
        releases = (protocol.Release(**declared, parameters=tuple(private_tensors(message, privacy))),)
    trained = {name: value for name, value in message.changes.items() if name in message.model}
    return protocol.RoundView(
        round=message.round,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.tensor([message.examples or 0]),
        deltas={name: torch.from_numpy(value)[None] for name, value in trained.items()},
        model={name: torch.from_numpy(_writable(message.model[name])) for name in trained},
        releases=releases,
        algorithm=message.algorithm,
    )


def _writable(value: Array) -> Array:
    """An array that PyTorch can share; attacks do not write to what they see."""
    return value if value.flags.writeable else value.copy()
