"""Folders of real pretrained networks, made once for all workers of a test run; tests without their packages skip."""

from pathlib import Path

import pytest

from fedleak.client.packaged_weights import PACKAGED, write_weights


def real_weights(name: str, scratch: pytest.TempPathFactory) -> Path:
    """The folder of a network; skips the test where its package is not installed."""
    if PACKAGED[name].installed_folder() is None:
        pytest.skip(f"{PACKAGED[name].package} is not installed")
    # The parent of each worker's own folder is that of the whole run.
    folder = scratch.getbasetemp().parent / f"weights-{name}"
    if not folder.exists():
        own = scratch.mktemp("weights") / name
        write_weights(PACKAGED[name], own)
        try:
            own.rename(folder)
        except OSError:  # another worker was first
            assert folder.exists()
    return folder
