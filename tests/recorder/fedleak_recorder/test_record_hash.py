"""Records that a loop hands to the recorder become salted hashes in the ground truth."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedleak_recorder import InputError, Recorder
from fedleak_recorder.record_hash import record_hashes

GRID = np.array([0.5, 0.01]), np.array([-0.1, 0.003])
ROWS = GRID[1] + GRID[0] * np.array([[3.0, -7.0], [0.0, 40.0]])
SENT = {"weight": [1.0, 2.0]}


def test_records_are_hashed_on_their_grid_and_padded(tmp_path: Path) -> None:
    with Recorder(tmp_path / "deltas", parameters={"weight": (2,)}) as recorder:
        updates = {"a": (SENT, 2), "b": (SENT, 1)}
        recorder.round(0, {"weight": [0, 0]}, updates, records={"a": ROWS, "b": ROWS[1:]}, record_grid=GRID)
    (path,) = (tmp_path / "deltas/truth").glob("*.safetensors")
    truth = load_file(path)
    for salt, hashes in zip(truth["client/record_salt"], truth["client/record_hash"], strict=True):
        own = ROWS if hashes[1].any() else ROWS[1:]
        assert np.array_equal(hashes[: len(own)], record_hashes(own.astype(np.float32), salt, GRID))
    assert np.array_equal(truth["client/record_step"], np.stack([GRID[0]] * 2))


def test_records_off_the_grid_are_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path / "deltas", parameters={"weight": (2,)}) as recorder:
        with pytest.raises(InputError, match="record_grid"):
            recorder.round(0, {"weight": [0, 0]}, {"a": (SENT, 2)}, records={"a": ROWS})
        recorder.round(0, {"weight": [0, 0]}, {"a": (SENT, 2)}, records={"a": ROWS * 0})
