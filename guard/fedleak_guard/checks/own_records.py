"""The client's records that the server can solve for."""

from typing import ClassVar

import numpy as np

from fedleak_guard.check import Check, Measured, measured
from fedleak_guard.message import Message
from fedleak_guard.own_attack import estimate_of
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import as_array


class OwnRecords(Check):
    """Training records that linear inversion solves for with a certificate, from the message alone.

    If the site gives the records, those that the attack finds exactly count too, certified or not.
    """

    name = "own-records"
    text = "number of training records that the server can solve for (linear-inversion)"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    limited = True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        found = estimate_of("attacks.reconstruction.linear_inversion.LinearInversion", message, policy, images=True)
        certified = int(found.certified.sum())
        exact = 0
        if message.records is not None:
            own = as_array(message.records, where="records").astype(np.float64)
            own = (own / 255 if as_array(message.records).dtype == np.uint8 else own).reshape(len(own), -1)
            made = found.records[0, : int(found.count[0])].double().numpy().reshape(-1, own.shape[1])
            exact = sum(bool((np.abs(made - one).max(axis=1) < 1e-3).any()) for one in own) if len(made) else 0
        value = max(certified, exact)
        return measured(value, policy.limits.get(self.name, 0), f"the server can solve for {value} training records")
