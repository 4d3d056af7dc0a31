"""The client's records that the server can solve for."""

import numpy as np

from fedleak_guard.message import Message
from fedleak_guard.own_attack import OwnAttack, estimate_of
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import as_array


class OwnRecords(OwnAttack):
    """Training records that linear inversion solves for with a certificate, from the message alone.

    If the site gives the records, those that the attack finds exactly count too, certified or not.
    """

    name = "own-records"
    text = "number of training records that the server can solve for (linear-inversion)"

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        found = estimate_of(
            "fedleak.attacks.reconstruction.linear_inversion.LinearInversion", message, policy, images=True
        )
        certified = int(found.certified.sum())
        exact = 0
        if message.records is not None:
            own = as_array(message.records, where="records").astype(np.float64)
            own = (own / 255 if as_array(message.records).dtype == np.uint8 else own).reshape(len(own), -1)
            made = found.records[0, : int(found.count[0])].double().numpy().reshape(-1, own.shape[1])
            exact = sum(bool((np.abs(made - one).max(axis=1) < 1e-3).any()) for one in own) if len(made) else 0
        value = max(certified, exact)
        return value, f"the server can solve for {value} training records"
