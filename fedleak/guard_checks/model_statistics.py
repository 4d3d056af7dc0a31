"""Statistics of a received model by `fedleak.defenses.model_checks`, as far as the site can compute them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedleak.core.errors import InputError
from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel, model_checks
from fedleak_guard.check import NotMadeError
from fedleak_guard.earlier_round import EarlierRound
from fedleak_recorder.arrays import Array

_LISTS = "allow-list", "commitment"
"""Checks against lists, which the check ``received-hash`` of the policy makes."""
_OWN_NORM = "server-step"
"""The check that needs the own last update, and no records."""
_ANY_MODEL = "proportional-rows"
"""The check that needs the received model alone."""


def model_statistics(
    received: Mapping[str, Array],
    *,
    earlier: EarlierRound | None,
    examples: tuple[Array, Array] | None,
    network: Callable[[], nn.Module] | None,
) -> dict[str, float]:
    """Statistic of each check that can be computed, higher for more suspicious models.

    Args:
        received: the received model.
        earlier: the round before; None in the first one.
        examples: the own records and classes, see `fedleak_guard.own_data.chosen_records`; None if they are not known.
        network: makes the network, with initial weights that it draws; None if it is not known.

    Raises:
        NotMadeError: the network has other parameters than the model.
    """
    module = None if network is None else network()
    names = _parameters(received, module)
    # What the received model is compared with: that of the round before, in the first one an untrained network.
    reference = None
    if earlier is not None:
        reference = _tensors(earlier.model, names)
    elif module is not None:
        reference = {name: value.detach() for name, value in module.named_parameters()}
    # Checks that read examples are not made without them; the others get none.
    inputs = np.zeros((0, 1), np.float32)
    labels = np.zeros(0, np.int64)
    if examples is not None:
        inputs, labels = examples
    received_model = ReceivedModel(
        network=nn.Identity() if module is None else module,
        model=_tensors(received, names),
        reference=reference or {},
        inputs=torch.from_numpy(inputs),
        labels=torch.from_numpy(labels),
        is_first=earlier is None,
        own_delta=None if earlier is None else {"norm": torch.tensor([earlier.norm])},
    )
    has_examples = examples is not None and module is not None
    statistics = {}
    for name, kind in model_checks().items():
        if name in _LISTS or not _is_possible(kind, has_reference=reference is not None, has_examples=has_examples):
            continue
        try:
            statistics[name] = float(kind().statistic(received_model))
        except InputError:  # the network has no layer of units
            continue
    return statistics


def names_of_statistics() -> frozenset[str]:
    """Names of the checks that may have a threshold."""
    return frozenset(model_checks()) - set(_LISTS)


def _parameters(received: Mapping[str, Array], module: nn.Module | None) -> list[str]:
    """Names of the tensors that are compared: the network's parameters; without it, all of floating-point numbers.

    Raises:
        NotMadeError: the received model lacks one.
    """
    if module is None:
        return [name for name, value in received.items() if value.dtype.kind == "f"]
    names = [name for name, _ in module.named_parameters()]
    for name in names:
        if name not in received:
            raise NotMadeError(f"the network has the parameter {name[:80]!r}, which the received model lacks")
    return names


def _tensors(values: Mapping[str, Any], names: list[str]) -> dict[str, Tensor]:
    """The named tensors in single precision, copied; those that the values lack are left out."""
    tensors = {}
    for name in names:
        if name in values:
            tensors[name] = torch.from_numpy(np.array(values[name], np.float32))
    return tensors


def _is_possible(kind: type[ModelCheck], *, has_reference: bool, has_examples: bool) -> bool:
    """Whether a check has what it reads."""
    if kind.name == _OWN_NORM:
        return has_reference
    if kind.reads_examples and not has_examples:
        return False
    return has_reference or kind.name == _ANY_MODEL
