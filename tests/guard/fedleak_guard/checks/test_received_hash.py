"""A memory adapter in place of the published first adapter is found by its hash."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from fedleak_guard import Guard, RefusedError
from fedleak_guard.message import tensors_hash
from fedleak_recorder.arrays import Array
from tests.guard_toys import message
from tests.memory_toys import fine_tuned, memory_model

pytestmark = pytest.mark.integration


def arrays(model: dict[str, Tensor]) -> dict[str, Array]:
    return {name: value.numpy() for name, value in model.items()}


def test_a_memory_adapter_is_refused_and_the_published_adapter_is_not(tmp_path: Path) -> None:
    published, memory = arrays(fine_tuned().first_model()), arrays(memory_model(12))
    assert {name: value.shape for name, value in memory.items()} == {n: v.shape for n, v in published.items()}
    path = tmp_path / "policy.yaml"
    received = f"received: {{first_round: [{tensors_hash(published)}]}}"
    path.write_text(f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: '*'}}]\n{received}\n")
    sent = {name: np.full_like(value, 1e-3) for name, value in published.items()}
    guard = Guard(path)
    assert guard.release(message(sent=sent, received=published)).tensors is not None
    with pytest.raises(RefusedError, match="the first model has the hash"):
        guard.release(message(sent=sent, received=memory, job="another"))
