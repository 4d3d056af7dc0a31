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
        described = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return System(
            parameters={recorded(name): shape for name, shape in manifest.parameters.items()},
            data={"name": str(manifest.data["name"]), "sha256": str(manifest.data.get("sha256", ""))},
            holds=manifest.holds,
            learner=manifest.learner,
            releases=[
                {**release, "parameters": [recorded(name) for name in release.get("parameters") or manifest.parameters]}
                for release in manifest.releases
            ],
            row_parameters=[recorded(name) for name in manifest.row_parameters],
            auxiliary=self._auxiliary,
            origin={"converted_from": dict(manifest.system), "dump_manifest_sha256": described},
        )

    def model(self, one: DumpRound) -> dict[str, Tensor]:
        """The global model before a round; empty if it is unknown."""
        return {} if one.model is None else self._parameters(one.model)

    def sent(self, one: DumpRound, key: bytes) -> Iterator[Sent]:
        """What the clients of a round sent, read client after client in the order of their pseudonyms under a key."""
        self._check_size(one)
        stacked = None if one.file is None else self._parameters(one.file)
        for place, client in sorted(enumerate(one.clients), key=lambda each: pseudonym(each[1].client, key)):
            if stacked is not None:
                arrays, where = self._slice(stacked, place, one), f"{one.file}, client {client.client}"
            else:
                arrays, where = self._parameters(str(client.file)), str(client.file)
            served = arrays.pop(_SERVED, None)
            yield Sent(
                client=client.client,
                examples=client.examples,
                arrays=arrays,
                served=None if served is None else self._served(served, where),
                truth=self._truth(client),
                participants=client.participants,
                where=where,
            )

    def _parameters(self, name: str) -> dict[str, Tensor]:
        """A file's arrays under the recording's names."""
        path = inside(self.path.parent, name, what="arrays")
        arrays = read_arrays(path)
        if path.suffix != ".npz":  # safetensors sorts its names
            known = [key for key in self.manifest.parameters if key in arrays]
            arrays = {key: arrays[key] for key in (*known, *(key for key in arrays if key not in known))}
        return {self.manifest.recorded_name(key): value for key, value in arrays.items()}

    def _slice(self, stacked: Mapping[str, Tensor], place: int, one: DumpRound) -> dict[str, Tensor]:
        for name, value in stacked.items():
            require(
                name != _SERVED and value.dim() and len(value) == len(one.clients),
                f"arrays of {len(one.clients)} clients, stacked, and no {_SERVED!r}",
                f"{name!r} of shape {tuple(value.shape)} in {one.file}",
                "List the round's clients in the order of the arrays, or give each a file of its own.",
            )
        return {name: value[place] for name, value in stacked.items()}

    def _check_size(self, one: DumpRound) -> None:
        """Refuses a round that needs more memory than its files can hold numbers."""
        names = [name for name in (one.file, *(client.file for client in one.clients)) if name is not None]
        size = sum(regular_file(inside(self.path.parent, name, what="arrays")) for name in names)
        dense = [shape for name, shape in self.manifest.parameters.items() if name not in self.manifest.row_parameters]
        needed = 4 * len(one.clients) * sum(map(math.prod, dense))
        expected = f"files of round {one.round} with {needed} bytes of parameters"
        found = f"{size} bytes in {len(names)} files"
        require(needed <= max(_MOST_OF_ROUND, _MOST_OF_SIZE * size), expected, found, "Correct the shapes.")

    def _served(self, served: Tensor, where: str) -> Tensor:
        whole = not (served.is_floating_point() or served.is_complex() or served.dtype == torch.bool)
        found = f"{served.dtype} of shape {tuple(served.shape)} in {where}"
        way_out = "Give the numbers of the items that this client was served."
        require(whole and served.dim() == 1, f"{_SERVED!r} as whole numbers (R,)", found, way_out)
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
        held = read_arrays(inside(self.path.parent, self.manifest.auxiliary, what="auxiliary data"))
        if "images" in held and held["images"].dtype == torch.uint8:
            held["images"] = held["images"].float() / 255
        return {name: value.float() if value.is_floating_point() else value for name, value in held.items()}
