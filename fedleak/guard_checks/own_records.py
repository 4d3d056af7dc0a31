"""The client's records that the server can solve for."""

import numpy as np

from fedleak.attacks.reconstruction.linear_inversion import LinearInversion
from fedleak.attacks.reconstruction.linear_layer import LinearEstimate
from fedleak.guard_checks.own_estimate import estimate_of_round, own_view, with_own_images
from fedleak_guard.declared_checks import OwnRecords
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy
from fedleak_recorder.arrays import as_array

_EXACT = 1e-3
"""Largest difference of a number at which a record counts as found: of images from 0 to 1 a quarter of a grey level."""


class RecordsByInversion(OwnRecords):
    """Training records that linear inversion solves for with a certificate, from the message alone.

    If the site gives the records, those that the attack finds exactly count too, certified or not.
    """

    def attacked(self, message: Message, policy: Policy) -> tuple[float, str]:
        view = with_own_images(own_view(message, policy), message)
        estimate = estimate_of_round(LinearInversion(), LinearEstimate, view)
        solved = int(estimate.certified.sum())
        if message.records is not None:
            exact = _exact(estimate, as_array(message.records, where="records"))
            solved = max(solved, exact)
        return solved, f"the server can solve for {solved} training records"


def _exact(estimate: LinearEstimate, records: np.ndarray) -> int:
    """Number of the own records that are among the estimated ones."""
    # Bytes are pixels, which the network gets as numbers from 0 to 1.
    scale = 255 if records.dtype == np.uint8 else 1
    client_records = (records.astype(np.float64) / scale).reshape(len(records), -1)
    count = int(estimate.count[0])
    solved = estimate.records[0, :count].double().numpy().reshape(-1, client_records.shape[1])
    if not len(solved):
        return 0
    exact = 0
    for record in client_records:
        # Near in the number that differs most, to any of the solved ones.
        distances = np.abs(solved - record).max(axis=1)
        exact += bool((distances < _EXACT).any())
    return exact
