"""Estimates of attacks on the server's view of the one client that is about to send."""

import dataclasses
from typing import TypeVar

import numpy as np
import torch

from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import RoundView
from fedleak_guard.check import NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.noise_tests import private_tensors
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import Array, as_array

_Estimate = TypeVar("_Estimate", bound=Estimate)


def estimate_of_round(attack: Attack, kind: type[_Estimate], view: RoundView) -> _Estimate:
    """Estimate of an attack on what the server sees of this client in one round.

    Args:
        attack: the attack.
        kind: what it estimates.
        view: see `own_view`.

    Raises:
        NotMadeError: the message lacks what the attack needs, or the attack does not fit it.
    """
    return _estimate(attack, kind, view)


def estimate_of_history(attack: Attack, kind: type[_Estimate], view: RoundView) -> _Estimate:
    """The same of an attack on several rounds, here on this one alone."""
    history = History(
        **view.common(),
        sent_in=torch.tensor([view.round]),
        by_round={view.round: view},
    )
    return _estimate(attack, kind, history)


def _estimate(attack: Attack, kind: type[_Estimate], view: RoundView | History) -> _Estimate:
    """Estimate of an attack; what the attack lacks is why the check is not made."""
    try:
        # A fixed seed: the same message has the same finding, however often it is checked.
        estimate = attack(view, generator=torch.Generator().manual_seed(0))
    except ViewError as error:
        raise NotMadeError(" ".join(str(error).split())) from None
    if not isinstance(estimate, kind):
        raise TypeError(f"expected a {kind.__name__} of {attack.name}, got a {type(estimate).__name__}")
    return estimate


def own_view(message: Message, policy: Policy) -> RoundView:
    """The server's view of this client alone, computed once for all checks of a message.

    Args:
        message: what is about to leave.
        policy: declares the clip and the noise that the server knows.

    Raises:
        NotMadeError: the received model is unknown.
    """
    if message.received is None:
        raise NotMadeError("the received model is unknown")
    if "view" not in message.memo:
        message.memo["view"] = _view(message, policy)
    view = message.memo["view"]
    assert isinstance(view, RoundView)
    return view


def with_own_images(view: RoundView, message: Message) -> RoundView:
    """A view with the own records, from which attacks learn on which grid records lie, as from the server's images."""
    if message.records is None:
        return view
    images = torch.from_numpy(np.array(as_array(message.records, where="records")))
    return dataclasses.replace(view, auxiliary={"images": images})


def _view(message: Message, policy: Policy) -> RoundView:
    """The server's view of this client: its change, the model that it trained from, and what is publicly declared."""
    releases: tuple[Release, ...] = ()
    privacy = policy.privacy
    if privacy is not None:
        declared = Release(
            clip=privacy.clip,
            noise_scale=privacy.noise or 0.0,
            neighbours=privacy.neighbours,
            parameters=tuple(private_tensors(message, privacy)),
        )
        releases = (declared,)
    # The server attacks what it can compare with the model that it sent.
    deltas = {}
    model = {}
    for name, change in message.changes.items():
        if name in message.model:
            deltas[name] = torch.from_numpy(change)[None]
            model[name] = torch.from_numpy(_writable(message.model[name]))
    return RoundView(
        round=message.round,
        pseudonyms=torch.zeros(1, dtype=torch.int64),
        example_counts=torch.tensor([message.examples or 0]),
        deltas=deltas,
        model=model,
        releases=releases,
        algorithm=message.algorithm,
    )


def _writable(value: Array) -> Array:
    """An array that PyTorch can share; attacks do not write to what they see."""
    return value if value.flags.writeable else value.copy()
