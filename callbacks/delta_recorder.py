"""Records what the server sees in every round, and apart from it the truth."""

import contextlib
import errno
import fnmatch
import hashlib
import secrets
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from callbacks.message_sums import MessageSums
from datamodules.base import FederatedDataModule
from datamodules.recommendation.base import RecommenderDataModule
from datamodules.recommendation.called import draw_clients
from datamodules.recordings.adversary_devices import POPULARITY_OF_OTHERS, popularity_of_others, prior_knowledge
from datamodules.recordings.format import (
    AUXILIARY,
    CLIENT,
    ITEM_FEATURES,
    MANIFEST,
    MODEL,
    Manifest,
    append_journal,
    close_journal,
    dtype_of,
    journal_name,
    journals_in,
    only_writer,
    read_journal,
    read_manifest,
    rewrite_journal,
    shard_bytes,
    shard_name,
    write_manifest,
    write_shard,
    write_whole,
)
from modules.federated import FederatedModule, RoundRecord
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from ranges import NonNegativeInt, PositiveInt

_PACKAGES = ("torch", "lightning", "numpy", "safetensors")
_AUXILIARY_NAMES = {"image": "images", "label": "labels"}


class DeltaRecorder(Callback):
    """Writes one shard per round and rank, while the next round trains and before a checkpoint of it is made.

    Resumed training continues the recording: shards of rounds that the checkpoint does not hold are written again.

    Args:
        directory: where to; None for ``deltas`` in the trainer's root folder.
        parameters: patterns of the names of the parameters to record, None for all.
        dtype: storage type of the deltas.
        every_n_rounds: record only every n-th round, and all rounds that have settings of their own; 0 records only
            these.
        sums_at: record instead, when a client has sent so many messages, their sum.
        clients: of how many clients, drawn at random, the sums are kept; None for all.
    """

    reads_updates = True

    def __init__(
        self,
        *,
        directory: str | None = None,
        parameters: list[str] | None = None,
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
        every_n_rounds: NonNegativeInt = 1,
        sums_at: list[PositiveInt] | None = None,
        clients: PositiveInt | None = None,
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.parameters = parameters
        self.dtype = dtype
        self.every_n_rounds = every_n_rounds
        self.sums_at, self.clients = sums_at, clients
        self._sums: MessageSums | None = None
        self._kept: dict[str, Any] = {}
        """Of a checkpoint, what the sums were."""
        self._pseudonyms: dict[int, int] = {}
        self._run: str | None = None
        self._lock = contextlib.ExitStack()
        self._thread: ThreadPoolExecutor | None = None
        self._writing: tuple[int, Future[None]] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins the recording, or continues it where the checkpoint was made."""
        directory = self.folder(trainer)
        module = _federated(pl_module)
        if self.every_n_rounds < 1 and not module.round_settings():
            raise InputError(
                expected="every_n_rounds of at least 1, where no round has settings of its own",
                found=str(self.every_n_rounds),
                way_out="1 records all.",
            )
        self._run = trainer.strategy.broadcast(self._run or secrets.token_hex(16))
        self._sums = self._begin_sums(trainer)
        auxiliary = self._auxiliary_bytes(getattr(trainer, "datamodule", None), module)
        manifest = self._manifest(trainer, module, auxiliary)
        if trainer.is_global_zero:
            try:
                self._lock.enter_context(only_writer(directory))
                _continue(directory, manifest, trainer.global_step, trainer.world_size)
                write_manifest(directory, manifest)
                if auxiliary is not None:
                    write_whole(directory / AUXILIARY, auxiliary)
            except OSError as error:
                raise self._disk_error(error, trainer.global_step) from error
        trainer.strategy.barrier("recording begun")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes the round that has just ended."""
        record: RoundRecord = pl_module.round_record  # type: ignore[assignment]
        module = _federated(pl_module)
        regular = self.every_n_rounds > 0 and record.round % self.every_n_rounds == 0
        if not regular and record.round not in module.round_settings():
            return
        users = getattr(getattr(trainer, "datamodule", None), "client_users", None)
        if users is not None:
            record.client_truth["user"] = users[record.cohort.clients.cpu()]
        summed = record if self._sums is None else self._sums.add(record)
        if summed is None:
            return
        try:
            self._write(self.folder(trainer), summed, trainer.global_rank, module)
        except OSError as error:
            raise self._disk_error(error, record.round) from error

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """A checkpoint of a round is made only when the round is recorded."""
        self.wait()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What is measured of a round stands beside its recording."""
        self.wait()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last round is written."""
        self.wait()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the journal; a training that died just before does so when it is resumed with no round left."""
        directory = self.folder(trainer)
        if not (directory / MANIFEST).exists() or read_manifest(directory).run != self._run:
            return
        try:
            close_journal(directory, trainer.global_rank)
        except OSError as error:
            raise self._disk_error(error, trainer.global_step) from error

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Lets others write to the folder."""
        self._lock.close()

    def state_dict(self) -> dict[str, Any]:
        """The name of the training, by which a resumed one knows its recording."""
        return {"run": self._run, "sums": self._sums.state_dict() if self._sums else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the name back."""
        self._run, self._kept = state_dict["run"], state_dict.get("sums", {})

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """What was handed over before is still written; a second error must not hide the first."""
        with contextlib.suppress(InputError):
            self.wait()
        self._lock.close()

    def folder(self, trainer: Trainer) -> Path:
        """Where the recording lies."""
        return self.directory or Path(trainer.default_root_dir) / "deltas"

    def _begin_sums(self, trainer: Trainer) -> MessageSums | None:
        if self.sums_at is None:
            return None
        data: Any = getattr(trainer, "datamodule", None)
        if trainer.world_size > 1:
            raise InputError(
                expected="one process with DeltaRecorder.sums_at",
                found=str(trainer.world_size),
                way_out="Train with --trainer.devices 1; the sums of other processes would stand in no checkpoint.",
            )
        drawn = draw_clients if isinstance(data, RecommenderDataModule) else _any_clients
        sums = MessageSums(drawn(data, data.num_clients if self.clients is None else self.clients), self.sums_at)
        if self._kept:
            sums.load_state_dict(self._kept)
        return sums

    def _manifest(self, trainer: Trainer, module: FederatedModule, auxiliary: bytes | None) -> Manifest:
        public = module.public_description()
        recorded = {
            name: dict(value, dtype=self.dtype) for name, value in public["parameters"].items() if self._wanted(name)
        }
        if not recorded:
            raise InputError(
                expected=f"patterns among {', '.join(public['parameters'])}",
                found=str(self.parameters),
                way_out="Leave parameters out to record all of them.",
            )
        data = getattr(trainer, "datamodule", None)
        return Manifest(
            parameters=recorded,
            row_parameters=[name for name in public["row_parameters"] if name in recorded],
            learner=public["learner"],
            releases=public["releases"],
            seed=module.seed,
            data=getattr(data, "fingerprint", {"name": "unknown", "sha256": ""}),
            config={
                "every_n_rounds": self.every_n_rounds,
                "model": type(module).__name__,
                "manipulation": module.server_manipulation,
                "round_settings": {str(number): setting for number, setting in module.round_settings().items()},
                "ranks": trainer.world_size,
            },
            versions={name: version(name) for name in _PACKAGES},
            commit=_commit(),
            auxiliary=None if auxiliary is None else hashlib.sha256(auxiliary).hexdigest(),
            run=self._run,
        )

    def _wanted(self, name: str) -> bool:
        return self.parameters is None or any(fnmatch.fnmatch(name, pattern) for pattern in self.parameters)

    def _write(self, directory: Path, record: RoundRecord, rank: int, module: FederatedModule) -> None:
        if not len(record.cohort):
            return
        # In the cohort clients stand by their numbers, which say who they are.
        order = _random_order(len(record.cohort), module, record.round, rank)
        clients = record.cohort.clients[order]
        served = {name: value[order] for name, value in record.served.items()}
        real = served["served"] >= 0 if served else None
        pseudonyms = torch.tensor([self._pseudonym(module, int(c)) for c in clients])
        seen: dict[str, Tensor] = {"clients": pseudonyms, "counts": record.cohort.counts[order]}
        seen |= {name: value[order] for name, value in record.of_clients.items()}
        truth: dict[str, Tensor] = {"clients": clients}
        truth |= {f"{CLIENT}{name}": value[order] for name, value in record.client_truth.items()}
        if real is not None:
            seen |= {"offsets": _offsets(real), **{name: value[real] for name, value in served.items()}}
            truth |= {"offsets": seen["offsets"]}
            truth |= {name: value[order][real] for name, value in record.truth.items()}
        for name, delta in record.update.deltas.items():
            if self._wanted(name):
                rows = record.update.rows.get(name)
                kept = delta[order] if rows is None else delta[order][rows[order] >= 0]
                kind = "deltas" if rows is None else "rows"
                seen[f"{kind}/{name}"] = self._stored(kept, name, record.round)
        seen |= {f"{MODEL}{name}": value for name, value in record.model.items()}
        seen |= {} if record.item_features is None else {ITEM_FEATURES: record.item_features}
        shards = {
            shard_name("truth", record.round, rank): shard_bytes(truth),
            shard_name("rounds", record.round, rank): shard_bytes(seen),
        }
        self.wait()
        self._writing = record.round, self._writer().submit(_write_shards, directory, rank, shards)

    def _writer(self) -> ThreadPoolExecutor:
        """One thread that writes while the next round trains."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        return self._thread

    def wait(self) -> None:
        """Until what was handed over is written and journalled; raises what went wrong."""
        if self._writing is None:
            return
        number, future = self._writing
        self._writing = None
        try:
            future.result()
        except OSError as error:
            raise self._disk_error(error, number) from error

    def _stored(self, value: Tensor, name: str, round_number: int) -> Tensor:
        stored = value.to(dtype_of(self.dtype))
        if stored.dtype == value.dtype:
            return stored
        if bool(torch.isfinite(value).all()) and not bool(torch.isfinite(stored).all()):
            raise InputError(
                expected=f"deltas that fit into {self.dtype}",
                found=f"an overflow in {name!r}, round {round_number}",
                way_out="Record with dtype: float32 or bfloat16.",
            )
        return stored

    def _pseudonym(self, module: FederatedModule, client: int) -> int:
        """The same in every round; without the training's secret key it does not say whose it is."""
        if client not in self._pseudonyms:
            generator = generator_for(module.secret, "pseudonym", module.seed, PERSISTENT, client)
            self._pseudonyms[client] = int(torch.randint(2**62, (), generator=generator))
        return self._pseudonyms[client]

    def _auxiliary_bytes(self, data: Any, module: FederatedModule) -> bytes | None:
        """What a data set leaves to the server: labelled images, or devices of its own and what they hold."""
        held: dict[str, Tensor] = dict(data.auxiliary()) if hasattr(data, "auxiliary") else {}
        if hasattr(data, "client_known"):
            held |= prior_knowledge(data, lambda client: self._pseudonym(module, client))
        if isinstance(data, RecommenderDataModule):
            pseudonyms = torch.tensor([self._pseudonym(module, client) for client in range(data.num_clients)])
            held[POPULARITY_OF_OTHERS] = popularity_of_others(data.user_items(), pseudonyms, data.num_items)
        return shard_bytes({_AUXILIARY_NAMES.get(name, name): value for name, value in held.items()}) if held else None

    def _disk_error(self, error: OSError, round_number: int) -> InputError:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        return InputError(
            expected="room and permission to record",
            found=f"{reason} in round {round_number}",
            way_out=f"Rounds before {round_number} are whole. Make room, then resume with --ckpt_path.",
        )


def _write_shards(directory: Path, rank: int, shards: dict[str, bytes]) -> None:
    append_journal(directory, rank, [write_shard(directory, name, content) for name, content in shards.items()])


def _federated(module: LightningModule) -> FederatedModule:
    if not isinstance(module, FederatedModule):
        raise InputError(
            expected="a federated module", found=type(module).__name__, way_out="Leave DeltaRecorder out of callbacks."
        )
    return module


def _any_clients(data: FederatedDataModule, count: int) -> Tensor:
    order = torch.randperm(data.num_clients, generator=generator_for(data.seed, "victims"))
    return order[:count].sort().values


def _random_order(clients: int, module: FederatedModule, round_number: int, rank: int) -> Tensor:
    """``(C,)`` positions, in an order that says nothing of the clients."""
    generator = generator_for(module.secret, "order of messages", module.seed, round_number, rank)
    return torch.randperm(clients, generator=generator)


def _continue(directory: Path, manifest: Manifest, next_round: int, ranks: int) -> None:
    """Keeps the rounds before `next_round` of a dead run's recording, which `ranks` processes go on with.

    Raises:
        InputError: the folder holds recorded rounds of another run, or of one that does not go on.
    """
    journals = {path: read_journal(path).lines for path in journals_in(directory)}
    recorded = len({line.round for lines in journals.values() for line in lines})
    if recorded and not ((directory / MANIFEST).exists() and read_manifest(directory).same_run(manifest)):
        raise InputError(
            expected="an empty folder, or the recording of this same training",
            found=f"another training's recording of {recorded} rounds in {directory}",
            way_out="To go on with that one, give its --ckpt_path. To begin anew, give another "
            "--trainer.default_root_dir, or delete the folder.",
        )
    for journal, lines in journals.items():
        rewrite_journal(journal, [line for line in lines if line.round < next_round])
    for rank in range(ranks, len(journals)):
        if directory / journal_name(rank) in journals:
            close_journal(directory, rank)  # nobody writes to it any more


def _offsets(real: Tensor) -> Tensor:
    zero = torch.zeros(1, dtype=torch.int64, device=real.device)
    return torch.cat([zero, real.sum(1).cumsum(0)])


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
