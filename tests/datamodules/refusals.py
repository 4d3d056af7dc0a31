"""What a data set that cannot be read or dealt out answers."""

import pytest

from fedleak.core.errors import InputError
from fedleak.training.data import FederatedDataModule


def refused(data: FederatedDataModule, match: str | None = None) -> InputError:
    """The error of a data set whose clients are counted."""
    with pytest.raises(InputError, match=match) as caught:
        _ = data.num_clients
    return caught.value
