"""Checks of the received model that the main package has."""

import importlib
import pkgutil
from typing import Any

from fedleak_guard.check import Check, Measured, NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy

_FOLDER = "defenses.model_checks"


class ReceivedModel(Check):
    """Checks of the received model in the main package's folder `defenses.model_checks`, if it has one.

    Each is a class with a `name`, a `threshold`, and ``statistic(received) -> float`` of the received model as tensors
    by name; a statistic above the threshold is a finding.
    """

    name = "received-model"
    text = "number of checks of the received model that find something (defenses.model_checks)"
    exact = True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        kinds = model_checks()
        if not kinds:
            raise NotMadeError(f"{_FOLDER} has no check with a threshold of its own; calibrate its checks by hand")
        torch = importlib.import_module("torch")
        received = {name: torch.from_numpy(value.copy()) for name, value in message.model.items()}
        found = []
        for kind in kinds:
            check = kind()
            value = float(check.statistic(received))
            if not value <= check.threshold:
                found.append(f"{kind.name} is {value:.4g}, above {check.threshold:.4g}")
        sentence = f"{len(found)} checks find something in the received model: {'; '.join(found[:3])}"
        return Measured(value=len(found), found=bool(found), limit=0, sentence=sentence)


def model_checks() -> list[Any]:
    """Classes of the main package that check a received model.

    Raises:
        NotMadeError: the main package is not installed, or has no such folder.
    """
    try:
        package = importlib.import_module(_FOLDER)
    except ImportError:
        raise NotMadeError(f"{_FOLDER} of the main package fedleak is not installed") from None
    found = []
    for module in pkgutil.iter_modules(package.__path__):
        path = f"{_FOLDER}.{module.name}"
        members = vars(importlib.import_module(path)).values()
        own = [one for one in members if isinstance(one, type) and one.__module__ == path and "name" in vars(one)]
        found += [one for one in own if hasattr(one, "statistic") and hasattr(one, "threshold")]
    return found
