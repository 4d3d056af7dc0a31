"""Recording of a training: the server's view of every round, and the ground truth in separate files."""

import contextlib
import errno
import hashlib
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from lightning import LightningModule, Trainer

from fedleak.callbacks.message_sums import MessageSums
from fedleak.callbacks.recorded_content import RecordedContent
from fedleak.core.errors import InputError
from fedleak.core.provenance import commit
from fedleak.core.ranges import NonNegativeInt, PositiveInt
from fedleak.training.candidates import CandidateOptions
from fedleak.training.data import data_of
from fedleak.training.federated import FederatedModule
from fedleak.training.lightning.unfinished_training import resume_command
from fedleak.training.round_record import RoundRecord
from fedleak.training.round_recorder import RoundRecorder
from fedleak_recorder.folder import RecordingFolder
from fedleak_recorder.format import MANIFEST, Manifest, read_manifest

_PACKAGES = ("torch", "lightning", "numpy", "safetensors")
_ANEW = (
    "To start a new one, give another --trainer.default_root_dir (in Python, Trainer(default_root_dir=...)), or delete "
    "the folder."
)


class DeltaRecorder(RoundRecorder):
    """Writes one shard per round and rank, in the background while the next round trains.

    A checkpoint is made only when its rounds are recorded. A resumed training continues the recording and rewrites the
    shards of rounds that the checkpoint does not contain.

    Args:
        directory: folder of the recording; None for ``deltas`` in the trainer's root folder.
        parameters: name patterns of the parameters to record, None for all.
        dtype: storage type of the deltas.
        every_n_rounds: record every n-th round, and all rounds with settings of their own; 0 records only the latter.
        sums_at: numbers of messages of a client after which to record their sum, instead of single rounds.
        clients: number of clients, drawn at random, whose sums are recorded; None for all.
        keep_records: whether the ground truth holds the clients' training examples, which reports of reconstructions
            need for PSNR and pictures; without them it holds salted hashes, which prove exact reconstructions, and
            confirm guesses.
        candidates: records for attacks on membership, of which the server knows neither whether a client holds them nor
            which; None for none.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import DeltaRecorder, Recording, quiet_trainer
        >>> from fedleak.datamodules import SyntheticRecommender
        >>> from fedleak.modules import FNCF
        >>> folder = mkdtemp()
        >>> options = {"default_root_dir": folder, "enable_progress_bar": False}
        >>> trainer = quiet_trainer(max_steps=2, callbacks=[DeltaRecorder()], **options)
        >>> trainer.fit(FNCF(), SyntheticRecommender(users=12))
        >>> Recording(f"{folder}/deltas").rounds
        [0, 1]
    """

    def __init__(
        self,
        *,
        directory: str | None = None,
        parameters: list[str] | None = None,
        dtype: Literal["float32", "float16", "bfloat16", "float64"] = "float32",
        every_n_rounds: NonNegativeInt = 1,
        sums_at: list[PositiveInt] | None = None,
        clients: PositiveInt | None = None,
        keep_records: bool = False,
        candidates: CandidateOptions | None = None,
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.parameters = parameters
        self.dtype = dtype
        self.every_n_rounds = every_n_rounds
        self.sums_at = sums_at
        self.clients = clients
        self._sums: MessageSums | None = None
        self._kept: dict[str, Any] = {}
        """State of the sums in the checkpoint."""
        self._content = RecordedContent(parameters, dtype, keep_records=keep_records, candidates=candidates)
        self._run: str | None = None
        self._folder: RecordingFolder | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._writing: tuple[int, Future[None]] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Asks the module for the deltas of all clients."""
        if stage == "fit":
            federated(pl_module, "DeltaRecorder").reads_updates = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the recording, or continues it from the checkpoint."""
        directory = self.folder(trainer)
        module = federated(pl_module, "DeltaRecorder")
        if self.every_n_rounds < 1 and not module.round_settings():
            expected = "every_n_rounds of at least 1, as no round has settings of its own"
            raise InputError(expected=expected, found="0", way_out="Use 1 to record all rounds.")
        self._run = trainer.strategy.broadcast(self._run or secrets.token_hex(16))
        self._sums = self._begin_sums(trainer)
        auxiliary = self._content.auxiliary(data_of(trainer), module)
        manifest = self._manifest(trainer, module, auxiliary)
        self._folder = RecordingFolder(directory, trainer.global_rank)
        if trainer.is_global_zero:
            try:
                self._folder.lock()
                self._folder.resume(manifest, trainer.global_step, ranks=trainer.world_size, way_out=_way_out(trainer))
                self._folder.declare(manifest, auxiliary)
            except OSError as error:
                raise self._disk_error(error, trainer.global_step) from error
        trainer.strategy.barrier("recording begun")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes the finished round."""
        record: RoundRecord = outputs["record"]
        module = federated(pl_module, "DeltaRecorder")
        regular = self.every_n_rounds > 0 and record.round % self.every_n_rounds == 0
        if not regular and record.round not in module.round_settings():
            return
        # With sums, a round is recorded only if some client has then sent one of the numbers of messages.
        summed: RoundRecord | None = record
        if self._sums is not None:
            summed = self._sums.add(record)
        if summed is None:
            return
        try:
            self._write(summed, trainer.global_rank, module)
        except OSError as error:
            raise self._disk_error(error, record.round) from error

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Waits for the shards of the rounds that the checkpoint contains, those of all processes."""
        self.wait()
        trainer.strategy.barrier("rounds of the checkpoint recorded")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Waits for the shards of the last round."""
        self.wait()

    on_train_end = on_validation_start

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the journal; a training that was killed just before closes it when it is resumed."""
        directory = self.folder(trainer)
        if not (directory / MANIFEST).exists() or read_manifest(directory).run != self._run:
            return
        # The manifest is of this training: another one's journal is left as it is.
        try:
            RecordingFolder(directory, trainer.global_rank).close()
        except OSError as error:
            raise self._disk_error(error, trainer.global_step) from error

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Releases the lock of the folder."""
        if self._folder is not None:
            self._folder.release()

    def state_dict(self) -> dict[str, Any]:
        """Identifier of the training, by which a resumed training finds its recording, and the sums."""
        return {"run": self._run, "sums": self._sums.state_dict() if self._sums else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state."""
        self._run = state_dict["run"]
        self._kept = state_dict.get("sums", {})

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Waits for pending shards; an error while writing them must not hide the exception."""
        with contextlib.suppress(InputError):
            self.wait()
        self.teardown(trainer, pl_module, "fit")

    def folder(self, trainer: Trainer) -> Path:
        """Folder of the recording."""
        return self.directory or Path(trainer.default_root_dir) / "deltas"

    def _begin_sums(self, trainer: Trainer) -> MessageSums | None:
        if self.sums_at is None:
            return None
        data = data_of(trainer)
        if trainer.world_size > 1 or data is None:
            way_out = "Train with --trainer.devices 1: a checkpoint has the sums of one process only."
            expected = "one process and a data module with DeltaRecorder.sums_at"
            given = f"{trainer.world_size} processes, {type(data).__name__}"
            raise InputError(expected=expected, found=given, way_out=way_out)
        count = data.num_clients if self.clients is None else self.clients
        drawn = data.draw_clients(count)
        sums = MessageSums(drawn, self.sums_at)
        if self._kept:
            sums.load_state_dict(self._kept)
        return sums

    def _manifest(self, trainer: Trainer, module: FederatedModule, auxiliary: bytes | None) -> Manifest:
        public = module.public_description()
        recorded = {}
        for name, description in public["parameters"].items():
            if self._content.wanted(name):
                recorded[name] = dict(description, dtype=self.dtype)
        if not recorded:
            expected = f"patterns among {', '.join(public['parameters'])}"
            raise InputError(expected=expected, found=str(self.parameters), way_out="Leave them out to record all.")
        data = data_of(trainer)
        config = {
            "every_n_rounds": self.every_n_rounds,
            "model": type(module).__name__,
            "manipulation": module.server_manipulation,
            "round_settings": {str(number): setting for number, setting in module.round_settings().items()},
            "ranks": trainer.world_size,
        }
        auxiliary_hash = None
        if auxiliary is not None:
            auxiliary_hash = hashlib.sha256(auxiliary).hexdigest()
        return Manifest(
            parameters=recorded,
            row_parameters=[name for name in public["row_parameters"] if name in recorded],
            learner=public["learner"],
            releases=public["releases"],
            seed=module.seed,
            data={"name": "unknown", "sha256": ""} if data is None else data.fingerprint,
            config=config,
            versions={name: version(name) for name in _PACKAGES},
            commit=commit(),
            auxiliary=auxiliary_hash,
            run=self._run,
        )

    def _write(self, record: RoundRecord, rank: int, module: FederatedModule) -> None:
        if not len(record.cohort):
            return
        assert self._folder is not None
        shards = self._content.shards(record, rank, module)
        self.wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        # One shard is written while the next round trains; `wait` above has finished the one before.
        self._writing = (record.round, self._thread.submit(self._folder.write, shards))

    def wait(self) -> None:
        """Waits until the pending shards are written and journalled, and raises their error."""
        if self._writing is None:
            return
        number, future = self._writing
        self._writing = None
        try:
            future.result()
        except OSError as error:
            raise self._disk_error(error, number) from error

    def _disk_error(self, error: OSError, round_number: int) -> InputError:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        return InputError(
            expected="space and permission to write the recording",
            found=f"{reason} in round {round_number}",
            way_out=f"Rounds before {round_number} are complete. Free some space, then resume with --ckpt_path.",
        )


def _way_out(trainer: Trainer) -> str:
    """How to go on where the folder has the recording of another training."""
    command = resume_command(Path(trainer.default_root_dir))
    resume = f"To resume that training: {command} ." if command else "To resume that training, give its --ckpt_path."
    return f"{resume} {_ANEW}"


def federated(module: LightningModule, callback: str) -> FederatedModule:
    """The module, after a check that it is federated, as a callback requires."""
    if isinstance(module, FederatedModule):
        return module
    way_out = f"Remove {callback} from the callbacks."
    raise InputError(expected=f"a FederatedModule for {callback}", found=type(module).__name__, way_out=way_out)
