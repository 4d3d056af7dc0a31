"""Recorder of any federated system: a call per round, with arrays of any framework."""

import contextlib
import dataclasses
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedleak_recorder.arrays import FLOATS, HALF, Array, as_array, is_float
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import RECORDED_CLIENTS
from fedleak_recorder.gathered_round import Sent
from fedleak_recorder.plain_values import whole_number
from fedleak_recorder.pseudonyms import pseudonym, secret_key
from fedleak_recorder.record_hash import hashed_truth
from fedleak_recorder.remote import RemoteCopy
from fedleak_recorder.shape_check import Shapes, named
from fedleak_recorder.system import DType, Holds, System
from fedleak_recorder.writer import RecordingWriter, on_disk

Arrays = Mapping[str, Any] | Sequence[Any]
"""Parameters by name, as ``state_dict()`` gives them, or a list of them in the model's order."""


class Recorder:
    """Recording of what the server of a federated system sees, written while the system trains.

    Each round is on the disk when `round` returns, and a crash at any time leaves a recording of the rounds before.
    Use it as a context manager, or call `close` after the last round: it notes that no round is missing. A recording
    without that note, such as that of a training that was interrupted, is read with a warning.

    Clients appear under pseudonyms that a secret key gives, in an order that depends on the pseudonyms only. The key is
    drawn anew, or read from the environment variable ``FEDLEAK_KEY``, and is in no file of the recording.

    Args:
        folder: folder of the recording; it must not contain one, except to resume it.
        parameters: the model's parameters in order: arrays, of which the floating-point ones are recorded (not a
            counter such as ``num_batches_tracked``), or shapes; None for those of the first round's model.
        data: name of the data set, or ``name`` and ``sha256``.
        holds: whether clients send their trained ``models`` or the ``deltas``, local minus global.
        dtype: type in which deltas and models are stored; None for float64 if all parameters are arrays of that type,
            else float32. ``float16`` and ``bfloat16``, for clients that send deltas of that type, store deltas in half
            the bytes, without rounding, and models as float32.
        learner: the clients' algorithm, ``name`` and ``arguments`` of a learner of fedleak; None if it is unknown, an
            audit can name it later.
        releases: what clients publicly do to their deltas: ``clip``, ``noise_scale`` and ``parameters`` (all if empty).
        row_parameters: tables of which only the rows of the served items are kept.
        auxiliary: the server's auxiliary data, e.g. ``images (M, ch, h, w)`` and ``labels (M,)``.
        system: the system, its version and its settings, as free text by key.
        versions: versions of the system's packages.
        key: secret key of at least 16 bytes; needed to resume, because another key gives other pseudonyms.
        clients: number of clients of each round that are recorded, drawn by the secret key, the same in every round as
            long as they take part; None for all. The manifest says so: what an audit finds is of a random sample.
        resume_at: first round to record again after a restart from a checkpoint: the rounds before it are kept. Without
            it each round has a number of its own.
        copy_to: URL of fsspec for a copy that follows the recording, e.g. ``s3://bucket/run``, see `remote.RemoteCopy`;
            a failure is a warning until `close`, which raises it.

    Attributes:
        key: the secret key. Keep it where the checkpoints are, not with the recording.

    Raises:
        InputError: the folder holds a recording, or the description contradicts itself. Every call raises it before it
            writes anything; what was written before stays whole.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with Recorder(folder, parameters={"weight": (2,)}) as recorder:
        ...     recorder.round(0, {"weight": [0.0, 0.0]}, {"phone-17": ({"weight": [1.0, 2.0]}, 30)})
        >>> sorted(path.name for path in Path(folder).glob("rounds/*"))
        ['000000-0000.safetensors']
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        parameters: Mapping[str, Any] | None = None,
        data: str | Mapping[str, str] = "unknown",
        holds: Holds = "models",
        dtype: DType | None = None,
        learner: Mapping[str, Any] | None = None,
        releases: Sequence[Mapping[str, Any]] = (),
        row_parameters: Sequence[str] = (),
        auxiliary: Mapping[str, Any] | None = None,
        system: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        key: bytes | None = None,
        clients: int | None = None,
        resume_at: int | None = None,
        copy_to: str | None = None,
    ) -> None:
        right = isinstance(holds, str) and holds in ("models", "deltas")
        require(right, "holds as 'models' or 'deltas'", ascii(holds)[:60], "Correct it.")
        right = dtype is None or (isinstance(dtype, str) and dtype in FLOATS)
        require(right, f"dtype among {', '.join(FLOATS)}", ascii(dtype)[:60], "Correct it.")
        way_out = "A difference of models is not exact in that type: leave out dtype, or give deltas."
        right = dtype not in HALF or holds == "deltas"
        require(right, f"holds='deltas' with dtype={dtype!r}", f"holds={holds!r}", way_out)
        if key is not None:
            found = f"{len(key)}" if isinstance(key, bytes) else type(key).__name__
            right = isinstance(key, bytes) and len(key) >= 16
            require(right, "a key of at least 16 bytes", found, "Draw one: secrets.token_bytes(32).")
        path = isinstance(folder, str | os.PathLike) and "\0" not in str(folder)
        require(path, "a path as folder", ascii(folder)[:60], "Give the path of a new folder.")
        self.folder, self.key = Path(folder), secret_key() if key is None else key
        self._resume_at = None if resume_at is None else _round_number(resume_at, "resume_at")
        self._dtype = dtype
        self._most = None
        if clients is not None:
            way_out = "Give at least 1, or leave it out to record all."
            self._most = whole_number(clients, what="clients", where="the recorder", way_out=way_out, most=10**9)
            require(self._most >= 1, "clients of at least 1", clients, way_out)
            system = {RECORDED_CLIENTS: self._most, **_optional(system, "system")}
        self._system = System(
            parameters={},
            data={"name": data} if isinstance(data, str) else _mapping(data, "data"),
            holds=holds,
            learner=None if learner is None else _mapping(learner, "learner"),
            releases=[_mapping(release, "releases") for release in _sequence(releases, "releases")],
            row_parameters=_sequence(row_parameters, "row_parameters"),
            auxiliary=_optional(auxiliary, "auxiliary"),
            origin=_optional(system, "system"),
            versions=_optional(versions, "versions"),
        )
        self._closed = False
        self._writer: RecordingWriter | None = None
        self._names: list[str] = []
        """Names of all parameters that were described, in order, those that are not recorded among them."""
        if resume_at is None:
            with on_disk(f"into {folder}"):
                RecordingFolder(folder).check_free()
        self._copy = None if copy_to is None else RemoteCopy(copy_to)
        if self._copy is not None and resume_at is None:
            self._copy.check_free()
        if parameters is not None:
            self._describe(_mapping(parameters, "parameters"))

    @property
    def parameters(self) -> Shapes:
        """Shapes of the recorded parameters by name; empty before they are known."""
        return self._system.parameters

    def add_origin(self, system: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        """Adds what an adapter knows about its system, before the first round; what the caller gave stays."""
        origin, packages = {**system, **self._system.origin}, {**versions, **self._system.versions}
        self._system = dataclasses.replace(self._system, origin=origin, versions=packages)

    def round(
        self,
        number: int,
        model: Arrays | None,
        updates: Mapping[Any, tuple[Arrays, int]],
        *,
        truth: Mapping[Any, Mapping[str, Any]] | None = None,
        served: Mapping[Any, Sequence[int]] | None = None,
        participants: Mapping[Any, Sequence[Any]] | None = None,
        records: Mapping[Any, Any] | None = None,
        record_grid: tuple[Any, Any] | None = None,
    ) -> None:
        """Records a round.

        Args:
            number: number of the round, from 0 or 1.
            model: the global model before the round; None if it is unknown and clients send deltas.
            updates: by client, what it sent (its model or its delta) and the number of examples that it reports.
            truth: by client, ground truth for evaluations only, e.g. ``class_counts (K,)``.
            served: by client, numbers of the items that the server showed it ``(R,)``.
            participants: by client, all clients whose updates are in the sum that it is recorded with, itself included:
                under secure aggregation, the sum is given once for each participant, or once for one of them.
            records: by client, its training examples ``(N, ...)`` as the network gets them, of which the ground truth
                keeps salted hashes, by which reconstructions are scored; a hash confirms a guessed record.
            record_grid: step and origin of each number of a record, if it is no pixel in [0, 1] with 8 bits: values are
                ``origin + whole number * step``.

        Raises:
            InputError: something is of another model, not finite, too large for the stored type, or does not fit the
                rest of the round; the round was recorded before; or the disk is full. Then nothing of it is written,
                and the next round may follow.
        """
        updates = _mapping(updates, "updates", keys=object)
        held = _optional(records, "records", keys=object)
        self._check_names("records", held, updates)
        own = {client: as_array(value, where=f"the records of client {client}") for client, value in held.items()}
        hashes = hashed_truth(own, None if record_grid is None else _grid(record_grid))
        told, shown = _optional(truth, "truth", keys=object), _optional(served, "served", keys=object)
        self._check_names("truth", told, updates)
        self._check_names("served items", shown, updates)
        together = _optional(participants, "participants", keys=object)
        self._check_names("participants", together, updates)
        sent = [
            Sent(
                client=str(client),
                examples=examples,
                arrays=arrays,
                served=None if client not in shown else _items(shown[client], client),
                participants=[str(one) for one in _sequence(together.get(client, []), f"participants of {client}")],
                truth={**_mapping(told.get(client, {}), f"truth of client {client}"), **hashes.get(client, {})},
            )
            for client, (arrays, examples) in ((client, _pair(sent, client)) for client, sent in updates.items())
        ]
        self.record(number, model, sent)

    def record(self, number: int, model: Arrays | None, sent: Iterable[Sent]) -> None:
        """Records a `round` of messages, for adapters; their arrays may also be lists in the model's order."""
        messages = sorted(sent, key=lambda one: pseudonym(one.client, self.key))
        with self.streamed(number, model, clients=len(messages)) as add:
            for one in messages:
                add(one)

    @contextlib.contextmanager
    def streamed(
        self, number: int, model: Arrays | None, *, clients: int | None = None
    ) -> Iterator[Callable[[Sent], None]]:
        """A round whose messages are added while they arrive; memory holds a few clients, not the round.

        In the block, call what it gives with a `Sent` for each client. The round belongs to the recording when the
        block has ended; after an exception in it, nothing of the round is recorded. The order of the clients in the
        files is that of their arrival.

        Args:
            number: number of the round, from 0 or 1.
            model: the global model before the round; None if it is unknown and clients send deltas.
            clients: number of clients, if it is known.

        Example:
            >>> import tempfile
            >>> with Recorder(tempfile.mkdtemp(), parameters={"weight": (2,)}) as recorder:
            ...     with recorder.streamed(0, {"weight": [0.0, 0.0]}) as add:
            ...         add(Sent(client="phone-17", arrays={"weight": [1.0, 2.0]}, examples=30))
        """
        way_out = f"Make another one with key=recorder.key and resume_at={number}."
        require(not self._closed, "a recorder that is open", "one that was closed", way_out)
        number = _round_number(number, "number of a round")
        writer = self._begin(model)
        before = {} if model is None else self._named(model, f"the global model before round {number}")
        most = None if clients is None else min(clients, self._most or clients)
        with writer.streamed(number, before, self._most if most is None else most) as stream:

            def plain(one: Sent) -> Sent:
                return dataclasses.replace(one, arrays=self._named(one.arrays, _where(one, number)))

            if self._most is None:
                yield lambda one: stream.add(plain(one))
            else:
                drawn = _Drawn(self._most, self.key)
                yield lambda one: drawn.add(plain(one))
                for one in drawn.kept():
                    stream.add(one)
        if self._copy is not None:
            self._copy.try_to_follow(self.folder)

    def close(self) -> None:
        """Notes that no round is missing, and lets other processes write to the folder; call it after all rounds."""
        if self._closed:
            return
        if self._writer is None and self._resume_at is not None and self.parameters:
            self._begin(None)
        try:
            if self._writer is not None:
                self._writer.close()
            if self._copy is not None and self._writer is not None:
                self._copy.follow(self.folder)
        finally:
            self._release()

    def _release(self) -> None:
        self._closed = True
        if self._writer is not None:
            self._writer.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # rounds are missing
            self._release()

    def _describe(self, parameters: Mapping[str, Any]) -> None:
        shapes, types = {}, set()
        for name, value in parameters.items():
            if _is_shape(value):
                shapes[name] = tuple(int(size) for size in value)
                continue
            array = as_array(value, where=f"{name!r} of parameters")
            if is_float(array):
                shapes[name] = array.shape
                types.add(array.dtype.name)
        way_out = "Give the model's state_dict(), or shapes by name."
        require(shapes, f"parameters of a type among {', '.join(FLOATS)}", "none", way_out)
        dtype: DType = self._dtype or ("float64" if types == {"float64"} else "float32")
        self._system = dataclasses.replace(self._system, parameters=shapes, dtype=dtype)
        self._names = list(parameters)

    def _begin(self, model: Arrays | None) -> RecordingWriter:
        """The writer; the first round creates the recording."""
        if self._writer is None:
            if not self.parameters:
                way_out = "Give Recorder the argument parameters."
                require(isinstance(model, Mapping), "the model's parameters by name", type(model).__name__, way_out)
                self._describe(_mapping(model, "the global model"))
            self._writer = RecordingWriter(
                self.folder, self._system, key=self.key, resume_at=self._resume_at, growing=True
            )
        return self._writer

    def _named(self, arrays: Arrays, where: str) -> dict[str, Array]:
        """The recorded ones among a model's arrays."""
        if not isinstance(arrays, Mapping):
            arrays = _sequence(arrays, where)
            if len(arrays) != len(self._names):
                return named(self.parameters, [as_array(value, where=where) for value in arrays], where=where)
            arrays = dict(zip(self._names, arrays, strict=True))
        arrays, left_out = _mapping(arrays, where), set(self._names) - set(self.parameters)
        found = {
            name: as_array(value, where=f"{name!r} of {where}")
            for name, value in arrays.items()
            if name not in left_out
        }
        return {name: value for name, value in found.items() if name in self.parameters or is_float(value)}

    def _check_names(self, what: str, given: Mapping[Any, Any], updates: Mapping[Any, Any]) -> None:
        unknown = [name for name in given if name not in updates]
        found = f"{what} of {ascii(unknown[:1])[1:-1][:60]}, which sent nothing"
        require(not unknown, f"{what} of the clients of the round", found, "Correct the names.")


class _Drawn:
    """The clients whose pseudonyms are the smallest: a random sample, as the secret key gives the pseudonyms."""

    def __init__(self, most: int, key: bytes) -> None:
        self._most, self._key = most, key
        self._sent: list[tuple[int, int, Sent]] = []

    def add(self, one: Sent) -> None:
        """Keeps a copy of a message, if its client is among the drawn ones so far."""
        rank = -pseudonym(one.client, self._key)
        if len(self._sent) == self._most and rank < self._sent[0][0]:
            return
        own = dataclasses.replace(one, arrays={name: np.array(value) for name, value in one.arrays.items()})
        heapq.heappush(self._sent, (rank, -id(own), own))
        if len(self._sent) > self._most:
            heapq.heappop(self._sent)

    def kept(self) -> list[Sent]:
        """Those that are left, by pseudonym."""
        return [one for *_, one in sorted(self._sent, key=lambda entry: -entry[0])]


def _where(one: Sent, number: int) -> str:
    return one.where or f"what client {one.client} sent in round {number}"


def _round_number(value: Any, what: str) -> int:
    way_out = "Number the rounds from 0 or 1 on."
    return whole_number(value, what=what, where="a call of the recorder", way_out=way_out, most=10**15 - 1)


def _mapping(value: Any, what: str, *, keys: type = str) -> dict[Any, Any]:
    """A mapping; names of arrays and settings are texts, but a client may be known by any value."""
    require(isinstance(value, Mapping), f"a mapping as {what}", type(value).__name__, "Give it by name.")
    odd = [key for key in value if not isinstance(key, keys)]
    require(not odd, f"texts as names in {what}", ascii(odd[:1])[1:-1][:60], "Write that name as a text.")
    return dict(value)


def _optional(value: Any, what: str, *, keys: type = str) -> dict[Any, Any]:
    """A mapping, empty for None. Other values are not asked whether they are empty: an array has no answer."""
    return {} if value is None else _mapping(value, what, keys=keys)


def _sequence(value: Any, what: str) -> list[Any]:
    right = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    require(right, f"a list as {what}", ascii(type(value).__name__), "Give a list.")
    return list(value)


def _pair(sent: Any, client: Any) -> tuple[Any, Any]:
    right = isinstance(sent, list | tuple) and len(sent) == 2
    require(right, "(arrays, number of examples) of each client", f"{type(sent).__name__} of {client!r}", "Give both.")
    return sent[0], sent[1]


def _grid(given: Any) -> tuple[Array, Array]:
    """Step and origin of the numbers of a record."""
    right = isinstance(given, list | tuple) and len(given) == 2
    way_out = "Give record_grid=(step, origin), each a number or one for each number of a record."
    require(right, "a step and an origin as record_grid", ascii(type(given).__name__), way_out)
    step, origin = (as_array(part, where="record_grid") for part in given)
    fits = all(part.dtype.kind in "iuf" and bool(np.isfinite(part).all()) for part in (step, origin))
    require(fits and bool((step != 0).all()), "finite numbers as record_grid, no step of 0", "others", way_out)
    return step, origin


def _is_shape(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(isinstance(size, int | np.integer) for size in value)


def _items(given: Any, client: Any) -> Array:
    items = as_array(given, where=f"the served items of client {client}")
    right = items.ndim == 1 and (items.dtype.kind in "iu" or not items.size)
    found = f"{items.dtype} of shape {items.shape} for client {client}"
    if not right:
        raise InputError(expected="served items as whole numbers (R,)", found=found, way_out="Give their numbers.")
    return items.astype(np.int64)
