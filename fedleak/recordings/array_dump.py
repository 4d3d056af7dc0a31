"""A dump of another system as rounds of arrays, with one client's file in memory at a time."""

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.io.array_files import read_arrays
from fedleak.core.io.files import inside, regular_file
from fedleak.recordings.dump_manifest import DumpClient, DumpManifest, DumpRound, read_dump_manifest
from fedleak_recorder.pseudonyms import pseudonym
from fedleak_recorder.sent import Sent
from fedleak_recorder.system import System

_SERVED = "served"
_MOST_OF_ROUND = 2**30
"""Bytes that a round's parameters may take, whatever the size of its files."""
_MOST_OF_SIZE = 20
"""A larger round may take this many times the size of its files."""


class Dump:
    """Plain files of arrays with their manifest.

    Args:
        path: the manifest; its files are next to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: DumpManifest = read_dump_manifest(path)

    @property
    def system(self) -> System:
        """Description of the system, under the recording's names."""
        manifest = self.manifest
        recorded = manifest.recorded_name
        releases = []
        for release in manifest.releases:
            # A release without parameters is of all.
            names = release.get("parameters") or manifest.parameters
            releases.append({**release, "parameters": [recorded(name) for name in names]})
        return System(
            parameters={recorded(name): shape for name, shape in manifest.parameters.items()},
            data={"name": str(manifest.data["name"]), "sha256": str(manifest.data.get("sha256", ""))},
            holds=manifest.holds,
            learner=manifest.learner,
            releases=releases,
            row_parameters=[recorded(name) for name in manifest.row_parameters],
            auxiliary=self._auxiliary,
            origin={
                "converted_from": dict(manifest.system),
                "dump_manifest_sha256": hashlib.sha256(self.path.read_bytes()).hexdigest(),
            },
        )

    def model(self, dump_round: DumpRound) -> dict[str, Tensor]:
        """The global model before a round; empty if it is unknown."""
        if dump_round.model is None:
            return {}
        return self._parameters(dump_round.model)

    def sent(self, dump_round: DumpRound, key: bytes) -> Iterator[Sent]:
        """What the clients of a round sent, read client after client in the order of their pseudonyms under a key."""
        self._check_size(dump_round)
        stacked = None
        if dump_round.file is not None:
            stacked = self._parameters(dump_round.file)
        # Clients are numbered as in the stacked arrays, and read in the order of a recording.
        numbered = list(enumerate(dump_round.clients))
        numbered.sort(key=lambda numbered_client: pseudonym(numbered_client[1].client, key))
        for position, client in numbered:
            if stacked is not None:
                arrays = self._slice(stacked, position, dump_round)
                where = f"{dump_round.file}, client {client.client}"
            else:
                arrays = self._parameters(str(client.file))
                where = str(client.file)
            served = arrays.pop(_SERVED, None)
            if served is not None:
                served = self._served(served, where)
            yield Sent(
                client=client.client,
                examples=client.examples,
                arrays=arrays,
                served=served,
                truth=self._truth(client),
                participants=client.participants,
                where=where,
            )

    def _parameters(self, name: str) -> dict[str, Tensor]:
        """A file's arrays under the recording's names."""
        path = inside(self.path.parent, name, what="arrays")
        arrays = read_arrays(path)
        names = list(arrays)
        if path.suffix != ".npz":
            # safetensors sorts its names: back to the manifest's order, with what it does not name at the end.
            declared = [key for key in self.manifest.parameters if key in arrays]
            names = declared + [key for key in arrays if key not in declared]
        return {self.manifest.recorded_name(key): arrays[key] for key in names}

    def _slice(self, stacked: Mapping[str, Tensor], position: int, dump_round: DumpRound) -> dict[str, Tensor]:
        for name, value in stacked.items():
            require(
                name != _SERVED and value.dim() and len(value) == len(dump_round.clients),
                f"arrays of {len(dump_round.clients)} clients, stacked, and no {_SERVED!r}",
                f"{name!r} of shape {tuple(value.shape)} in {dump_round.file}",
                "List the round's clients in the order of the arrays, or give each a file of its own.",
            )
        return {name: value[position] for name, value in stacked.items()}

    def _check_size(self, dump_round: DumpRound) -> None:
        """Refuses a round that needs more memory than its files can hold numbers."""
        files = [dump_round.file, *(client.file for client in dump_round.clients)]
        names = [name for name in files if name is not None]
        size = sum(regular_file(inside(self.path.parent, name, what="arrays")) for name in names)
        # Four bytes for each number of each client; of tables, only rows are sent, whose number is not known here.
        numbers = 0
        for name, shape in self.manifest.parameters.items():
            if name not in self.manifest.row_parameters:
                numbers += math.prod(shape)
        needed = 4 * len(dump_round.clients) * numbers
        require(
            needed <= max(_MOST_OF_ROUND, _MOST_OF_SIZE * size),
            f"files of round {dump_round.round} with {needed} bytes of parameters",
            f"{size} bytes in {len(names)} files",
            "Correct the shapes.",
        )

    def _served(self, served: Tensor, where: str) -> Tensor:
        is_whole = not (served.is_floating_point() or served.is_complex() or served.dtype == torch.bool)
        require(
            is_whole and served.dim() == 1,
            f"{_SERVED!r} as whole numbers (R,)",
            f"{served.dtype} of shape {tuple(served.shape)} in {where}",
            "Give the numbers of the items that this client was served.",
        )
        return served.long()

    def _truth(self, client: DumpClient) -> dict[str, Tensor]:
        if isinstance(client.truth, str):
            return read_arrays(inside(self.path.parent, client.truth, what="truth"))
        try:
            return {name: torch.as_tensor(value) for name, value in client.truth.items()}
        except (AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(
                expected="truth as numbers by name, or the name of a file",
                found=f"{error} of client {client.client}",
                way_out="Correct the manifest.",
            ) from None

    @functools.cached_property
    def _auxiliary(self) -> dict[str, Tensor]:
        if self.manifest.auxiliary is None:
            return {}
        auxiliary = read_arrays(inside(self.path.parent, self.manifest.auxiliary, what="auxiliary data"))
        # Images of 8 bits are recorded as networks read them, in [0, 1].
        if "images" in auxiliary and auxiliary["images"].dtype == torch.uint8:
            auxiliary["images"] = auxiliary["images"].float() / 255
        for name, tensor in auxiliary.items():
            if tensor.is_floating_point():
                auxiliary[name] = tensor.float()
        return auxiliary
