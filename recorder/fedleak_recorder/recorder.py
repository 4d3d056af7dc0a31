"""Recorder of any federated system: a call per round, with arrays of any framework."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from fedleak_recorder.arrays import as_array
from fedleak_recorder.described_model import Arrays, DescribedModel
from fedleak_recorder.drawn_clients import DrawnClients
from fedleak_recorder.errors import require
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import RECORDED_CLIENTS
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.recorded import LintOfRecorded
from fedleak_recorder.plain_values import whole_number
from fedleak_recorder.pseudonyms import pseudonym, secret_key
from fedleak_recorder.record_hash import hashed_truth
from fedleak_recorder.recorder_arguments import (
    check_settings,
    read_by_client,
    read_grid,
    read_items,
    read_list,
    read_mapping,
    read_optional,
    read_update,
    round_number,
)
from fedleak_recorder.remote import RemoteCopy
from fedleak_recorder.sent import Sent
from fedleak_recorder.shape_check import Shapes
from fedleak_recorder.system import DType, Holds, System
from fedleak_recorder.writer import RecordingWriter, on_disk


class Recorder:
    """Recording of what the server of a federated system sees, written while the system trains.

    Each round is on the disk when `round` returns, and a crash at any time leaves a recording of the rounds before.
    Use it as a context manager, or call `close` after the last round: it notes that no round is missing. A recording
    without that note, such as that of a training that was interrupted, is read with a warning.

    Clients appear under pseudonyms that a secret key gives, in an order that depends on the pseudonyms only. The key is
    drawn anew, or read from the environment variable ``FEDLEAK_KEY``, and is in no file of the recording.

    The first messages are linted (docs/audit/lint.md): what of them is more than an update, such as rows of the data or
    a value for each record, is a warning, once, and in `findings`.

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

    lints: ClassVar[bool] = True
    """Whether the first messages are linted: not where they are known to be more than updates."""

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
        check_settings(folder=folder, holds=holds, dtype=dtype, key=key)
        self.folder = Path(folder)
        self.key = secret_key() if key is None else key
        self._resume_at = None
        if resume_at is not None:
            self._resume_at = round_number(resume_at, "resume_at")
        self._dtype = dtype
        self._most = None
        """Largest number of clients of a round that are recorded; None for all."""
        if clients is not None:
            way_out = "Give at least 1, or leave it out to record all."
            self._most = whole_number(clients, what="clients", where="the recorder", way_out=way_out, most=10**9)
            require(self._most >= 1, "clients of at least 1", clients, way_out)
            # Readers of the recording are told that its clients are a sample.
            system = {RECORDED_CLIENTS: self._most, **read_optional(system, "system")}
        if isinstance(data, str):
            data = {"name": data}
        if learner is not None:
            learner = read_mapping(learner, "learner")
        # The parameters follow, from the argument or from the first round's model.
        self._system = System(
            parameters={},
            data=read_mapping(data, "data"),
            holds=holds,
            learner=learner,
            releases=[read_mapping(release, "releases") for release in read_list(releases, "releases")],
            row_parameters=read_list(row_parameters, "row_parameters"),
            auxiliary=read_optional(auxiliary, "auxiliary"),
            origin=read_optional(system, "system"),
            versions=read_optional(versions, "versions"),
        )
        self._closed = False
        self._lint = LintOfRecorded()
        self._writer: RecordingWriter | None = None
        self._model: DescribedModel | None = None
        """The model as `parameters` or the first round's describes it; None before."""
        if resume_at is None:
            with on_disk(f"into {folder}"):
                RecordingFolder(folder).check_free()
        self._copy = None
        if copy_to is not None:
            self._copy = RemoteCopy(copy_to)
            if resume_at is None:
                self._copy.check_free()
        if parameters is not None:
            self._describe(read_mapping(parameters, "parameters"))

    @property
    def findings(self) -> list[Finding]:
        """What of the first messages is more than an update; each part once."""
        return list(self._lint.findings)

    @property
    def parameters(self) -> Shapes:
        """Shapes of the recorded parameters by name; empty before they are known."""
        return self._system.parameters

    def add_origin(self, system: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        """Adds what an adapter knows about its system, before the first round; what the caller gave stays."""
        self._system = dataclasses.replace(
            self._system,
            origin={**system, **self._system.origin},
            versions={**versions, **self._system.versions},
        )

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
        updates = read_mapping(updates, "updates", keys=object)
        examples_by_client = {}
        for client, examples in read_by_client(records, "records", updates).items():
            examples_by_client[client] = as_array(examples, where=f"the records of client {client}")
        hashes = hashed_truth(examples_by_client, read_grid(record_grid))
        truths = read_by_client(truth, "truth", updates)
        shown = read_by_client(served, "served", updates, of="served items")
        summed_clients = read_by_client(participants, "participants", updates)
        sent = []
        for client, update in updates.items():
            arrays, example_count = read_update(update, client)
            items = None
            if client in shown:
                items = read_items(shown[client], client)
            names = read_list(summed_clients.get(client, []), f"participants of {client}")
            client_truth = read_mapping(truths.get(client, {}), f"truth of client {client}")
            sent.append(
                Sent(
                    client=str(client),
                    examples=example_count,
                    arrays=arrays,
                    served=items,
                    participants=[str(name) for name in names],
                    truth={**client_truth, **hashes.get(client, {})},
                )
            )
        self.record(number, model, sent)

    def record(self, number: int, model: Arrays | None, sent: Iterable[Sent]) -> None:
        """Records a `round` of messages, for adapters; their arrays may also be lists in the model's order."""
        # By pseudonym, so that neither the caller's order nor that of arrival says who is who.
        messages = sorted(sent, key=lambda message: pseudonym(message.client, self.key))
        with self.streamed(number, model, clients=len(messages)) as add:
            for message in messages:
                add(message)

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
        number = round_number(number, "number of a round")
        writer, described = self._begin(model)
        before: Mapping[str, Any] = {}
        if model is not None:
            before = self._before(described, model, f"the global model before round {number}")
        limits = [limit for limit in (clients, self._most) if limit is not None]
        with writer.streamed(number, before, min(limits, default=None)) as stream:

            def with_names(message: Sent) -> Sent:
                where = message.where or f"what client {message.client} sent in round {number}"
                if self.lints:
                    self._lint.look(message, where)
                return self._named(described, message, where)

            if self._most is None:
                yield lambda message: stream.add(with_names(message))
            else:
                # Which clients are drawn is known only when all have sent.
                drawn = DrawnClients(self._most, self.key)
                yield lambda message: drawn.add(with_names(message))
                for message in drawn.by_pseudonym():
                    stream.add(message)
        if self._copy is not None:
            self._copy.try_to_follow(self.folder)

    def close(self) -> None:
        """Notes that no round is missing, and lets other processes write to the folder; call it after all rounds."""
        if self._closed:
            return
        # A resumed training without another round still has to drop the rounds that it would have recorded anew.
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

    def _before(self, described: DescribedModel, model: Any, where: str) -> Mapping[str, Any]:
        """Arrays of the global model by name."""
        return described.recorded(model, where)

    def _named(self, described: DescribedModel, message: Sent, where: str) -> Sent:
        """A message with its arrays by name."""
        return dataclasses.replace(message, arrays=described.recorded(message.arrays, where))

    def _describe(self, parameters: Mapping[str, Any]) -> DescribedModel:
        """Takes names, shapes and type of the recorded parameters from arrays, or from shapes."""
        described = DescribedModel(parameters)
        dtype = self._dtype or described.dtype
        self._system = dataclasses.replace(self._system, parameters=described.shapes, dtype=dtype)
        self._model = described
        return described

    def _begin(self, model: Arrays | None) -> tuple[RecordingWriter, DescribedModel]:
        """The writer and the described model; the first round creates the recording."""
        described = self._model
        if described is None:
            way_out = "Give Recorder the argument parameters."
            require(isinstance(model, Mapping), "the model's parameters by name", type(model).__name__, way_out)
            described = self._describe(read_mapping(model, "the global model"))
        if self._writer is None:
            self._writer = RecordingWriter(
                self.folder,
                self._system,
                key=self.key,
                resume_at=self._resume_at,
                growing=True,
            )
        return self._writer, described
