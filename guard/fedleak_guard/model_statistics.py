"""Statistics of a received model by `fedleak.defenses.model_checks`, as far as the site can compute them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedleak_guard.check import NotMadeError
from fedleak_guard.earlier_round import EarlierRound
from fedleak_guard.main_package import main_module
from fedleak_recorder.arrays import Array, as_array

MOST_RECORDS = 32
"""Own records that are looked at, evenly spaced ones of more; each has a gradient of its own."""
_LISTS = "allow-list", "commitment"
"""Checks against lists, which the check ``received-hash`` of the policy makes."""
_OWN_NORM = "server-step"
"""The check that needs the own last update, and no records."""


def chosen_records(records: Any, labels: Any) -> tuple[Array, Array] | None:
    """``(N, ...)`` at most `MOST_RECORDS` own records as float32 and ``(N,)`` their classes; None without both."""
    if records is None or labels is None:
        return None
    inputs, classes = as_array(records, where="records"), as_array(labels, where="labels")
    step = max(1, -(-len(inputs) // MOST_RECORDS))
    inputs, scale = inputs[::step], 255 if inputs.dtype == np.uint8 else 1
    return (inputs / scale).astype(np.float32), classes[::step].astype(np.int64)


def model_statistics(
    received: Mapping[str, Array],
    *,
    earlier: EarlierRound | None,
    examples: tuple[Array, Array] | None,
    network: Callable[[], Any] | None,
) -> dict[str, float]:
    """Statistic of each check that can be computed, higher for more suspicious models.

    Args:
        received: the received model.
        earlier: the round before; None in the first one.
        examples: the own records and classes, see `chosen_records`; None if they are not known.
        network: makes the network, with initial weights that it draws; None if it is not known.

    Raises:
        NotMadeError: the main package is not installed, or the network has other parameters than the model.
    """
    base = main_module("fedleak.defenses.model_checks.base")
    errors = main_module("fedleak.core.errors")
    torch = main_module("torch")
    module, names = None, [name for name, value in received.items() if value.dtype.kind == "f"]
    if network is not None:
        module = network()
        names = [name for name, _ in module.named_parameters()]
        missing = next((name for name in names if name not in received), None)
        if missing is not None:
            raise NotMadeError(f"the network has the parameter {missing[:80]!r}, which the received model lacks")

    def tensors(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: torch.from_numpy(np.array(values[name], np.float32)) for name in names if name in values}

    reference = None
    if earlier is not None:
        reference = tensors(earlier.model)
    elif module is not None:
        reference = {name: value.detach() for name, value in module.named_parameters()}
    norm = None if earlier is None else {"norm": torch.tensor([earlier.norm])}
    inputs, labels = examples if examples is not None else (np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
    seen = base.ReceivedModel(
        network=module,
        model=tensors(received),
        reference=reference or {},
        inputs=torch.from_numpy(inputs),
        labels=torch.from_numpy(labels),
        is_first=earlier is None,
        own_delta=norm,
    )
    found = {}
    for name, kind in base.model_checks().items():
        if name in _LISTS or not _is_possible(kind, reference, examples, module):
            continue
        try:
            found[name] = float(kind().statistic(seen))
        except errors.InputError:  # the network has no layer of units
            continue
    return found


def names_of_statistics() -> frozenset[str]:
    """Names of the checks that may have a threshold."""
    return frozenset(main_module("fedleak.defenses.model_checks.base").model_checks()) - set(_LISTS)


def _is_possible(kind: Any, reference: Any, examples: Any, module: Any) -> bool:
    """Whether a check has what it reads."""
    if kind.name == _OWN_NORM:
        return reference is not None
    if kind.reads_examples and (examples is None or module is None):
        return False
    return reference is not None or kind.name == "proportional-rows"
