"""The file of a recording's auxiliary data: what the server holds besides the updates."""

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from fedleak.core.io.files import regular_file
from fedleak.recordings.adversary_devices import EXAMPLES
from fedleak.recordings.shards import damaged, view_dtype
from fedleak_recorder.auxiliary_check import check_auxiliary
from fedleak_recorder.files import check_stays_inside
from fedleak_recorder.format import AUXILIARY, Manifest
from fedleak_recorder.tensor_checks import MisfitError


def read_auxiliary(directory: Path, manifest: Manifest, *, verify: bool) -> dict[str, Tensor]:
    """Auxiliary data of a recording by name; empty if its manifest names none.

    Args:
        directory: the recording.
        manifest: its manifest, with the hash of the file.
        verify: whether the file's bytes must have the hash.

    Raises:
        InputError: the file contradicts the manifest.
    """
    path = directory / AUXILIARY
    if manifest.auxiliary is None:
        if path.exists():
            raise damaged(AUXILIARY, "a file of which the manifest has no hash")
        return {}
    check_stays_inside(directory, AUXILIARY)
    regular_file(path, way_out="The recording is damaged: copy it again, whole.")
    content = path.read_bytes()
    if verify and hashlib.sha256(content).hexdigest() != manifest.auxiliary:
        raise damaged(AUXILIARY, "other bytes (its checksum differs)")
    try:
        stored: dict[str, Tensor] = load(content)
        check_auxiliary(stored)
    except (SafetensorError, MisfitError) as error:
        raise damaged(AUXILIARY, str(error)) from None
    # The model that reads the data has the type of the views.
    is_double = view_dtype(manifest) == torch.float64
    auxiliary = {}
    for name, tensor in stored.items():
        # Examples of which there are none are absent, as those of known devices where the adversary has no device.
        if name in EXAMPLES and not len(tensor):
            continue
        if is_double and tensor.is_floating_point():
            tensor = tensor.double()
        auxiliary[name] = tensor
    return auxiliary
