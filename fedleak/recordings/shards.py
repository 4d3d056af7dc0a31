"""Shards of a recording, opened only if their bytes have the journal's hash."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak_recorder.format import MODEL, Manifest
from fedleak_recorder.journal import JournalLine


class ShardFiles:
    """Shards of one kind, ``rounds`` or ``truth``."""

    def __init__(self, directory: Path, journal_lines: Mapping[str, JournalLine], kind: str, *, verify: bool) -> None:
        self._directory = directory
        self._verify = verify
        self._lines = {name: line for name, line in sorted(journal_lines.items()) if name.startswith(f"{kind}/")}
        self._verified: set[str] = set()
        self._by_round: dict[int, list[str]] = {}
        for name, line in self._lines.items():
            self._by_round.setdefault(line.round, []).append(name)

    @property
    def rounds(self) -> list[int]:
        """Ascending numbers of the rounds."""
        return sorted(self._by_round)

    def names(self, round_number: int) -> list[str]:
        """Shards of a round in the order of the ranks."""
        return self._by_round.get(round_number, [])

    def round_of(self, name: str) -> int:
        """The round of a shard."""
        return self._lines[name].round

    def __contains__(self, name: str) -> bool:
        return name in self._lines

    def open(self, name: str) -> Any:
        """Opens a shard; its tensors are read on access.

        Raises:
            InputError: its hash differs from the journal's, or it is no safetensors file.
        """
        path = self._directory / name
        try:
            if self._verify and name not in self._verified:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != self._lines[name].sha256:
                        raise damaged(name, "other bytes (its checksum differs)")
                self._verified.add(name)
            return safe_open(path, framework="pt")
        except (OSError, SafetensorError) as error:
            raise damaged(name, str(error)) from None

    def model_reader(self, dtype: torch.dtype) -> Callable[[int], dict[str, Tensor]]:
        """Function that reads the global model before a round, and nothing else."""

        def read(round_number: int) -> dict[str, Tensor]:
            with self.open(self.names(round_number)[0]) as shard:
                return model_of(shard, dtype)

        return read


def view_dtype(manifest: Manifest) -> torch.dtype:
    """Type of the models and deltas of server views: float64 if all deltas are recorded so, else float32."""
    return torch.float64 if manifest.double else torch.float32


def model_of(shard: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Global model in an opened shard of ``rounds/``, by parameter; for the type see `view_dtype`."""
    model = {}
    for key in shard.keys():  # noqa: SIM118 - no mapping
        if key.startswith(MODEL):
            model[key.removeprefix(MODEL)] = shard.get_tensor(key).to(dtype)
    return model


def damaged(name: str, fault: str) -> InputError:
    """Error for a file of a recording that contradicts the rest."""
    return InputError(
        expected=f"{name} as the journal and the manifest describe it",
        found=fault,
        way_out="The recording is damaged or foreign: copy it again, or record again.",
    )
