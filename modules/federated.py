"""The round: broadcast, local training, what clients do to their deltas, aggregation, one server step.

One Trainer step is one communication round. The averaged delta goes into ``p.grad`` and the server's optimizer steps
once, so ``global_step`` is the number of rounds, and ``max_steps``, checkpoints and resume mean what they say.
"""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from datamodules.cohort import Cohort
from datamodules.recordings.format import CLIENT_MODEL, PRIOR
from defenses.base import Defense, Update, hold_back, with_whole_tables
from modules.built_from_data import BuiltFromData
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.tasks import Parameters, Task
from modules.engine.training_job import LocalResult
from modules.learners.registry import learner_from
from modules.server import ServerOptimizer, WeightedSum, add_background_noise, weighted_sum
from protocol.errors import InputError
from protocol.seeding import generator_for, secret_key
from protocol.view import Release, ServerView, features_of

Weighting = Literal["examples", "uniform"]

_NUMBERS_AT_ONCE = 2**26
"""Numbers in the deltas that a round keeps at once where nobody reads them afterwards: 256 MiB."""


@dataclass
class RoundRecord:
    """One round as the server saw it, and apart from it the truth.

    Attributes:
        round: number of the round.
        cohort: this rank's clients, cut to those whom the update is about where a defence shows the server no others.
        participants: ``(C,)`` numbers of all of this rank's clients of the round. Those that held back are among them:
            a client that sends nothing adds no noise, but its silence depends on its data, so nothing is credited.
        update: what they sent; no deltas where no callback `reads_updates` and they would be too large to keep.
        model: the public parameters before the round.
        served: ``(C, R, ...)`` tensors of what the server showed each client; ``served`` ``(C, R)`` numbers the items,
            padded with -1. Empty where it shows nothing.
        truth: ``(C, R)`` tensors that only an evaluation may open, of the served items.
        client_truth: ``(C, ...)`` tensors that only an evaluation may open, of the clients themselves.
        of_clients: ``(C, ...)`` tensors that the server has of each client next to its update, by their names in a
            recording.
        item_features: ``(I, F)`` features of the items that ``served`` numbers, the same for all clients, or None.
    """

    round: int
    cohort: Cohort
    participants: Tensor
    update: Update
    model: Parameters
    served: dict[str, Tensor]
    truth: dict[str, Tensor]
    client_truth: dict[str, Tensor] = field(default_factory=dict)
    of_clients: dict[str, Tensor] = field(default_factory=dict)
    item_features: Tensor | None = None


class FederatedModule(BuiltFromData):
    """Federated training of any task; a subclass gives its task, its private parameters and its truth.

    Sizes that come from the data are optional arguments of a subclass; see `BuiltFromData`.

    Args:
        local: how clients train.
        server: what the server does with the average.
        defenses: what clients do to protect themselves, in the order in which they do it.
        weighting: whether a client counts by its examples or as one.
        seed: seed of every draw.
    """

    round_record: RoundRecord
    rows_are_public: bool = True
    """Whether the rows that a client trains are those that it was served, so that the server knows them; False where
    they say what the client holds, e.g. which words."""

    precisions: ClassVar[tuple[str, ...]] = ("32-true",)
    """Values of ``--trainer.precision`` under which this learner trains."""

    def __init__(
        self,
        *,
        local: LocalTraining,
        server: ServerOptimizer,
        defenses: Sequence[Defense],
        weighting: Weighting,
        seed: int,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.local = local
        self.server = server
        self.defenses = list(defenses)
        for place, defense in enumerate(self.defenses):
            defense.placed(self.defenses[:place])
        self.weighting = weighting
        self.seed = seed
        self._secret: bytes | None = None
        self._spent: LocalResult | None = None
        """The last round's result: once a round is recorded, its memory serves the next."""
        self.private: Parameters = {}
        """Tables of the clients' private parameters, ``(clients, ...)``, on the CPU; they are never sent. Each rank
        keeps the rows of the clients it trains, and DDP must not broadcast them: so they are no buffers."""

    @property
    def secret(self) -> bytes:
        """Key of what the clients draw in secret: the noise of their defences, their pseudonyms, the order of messages.

        It is the same on every rank and stands in the checkpoint; see `protocol.seeding.secret_key`.
        """
        if self._secret is None:
            self._secret = secret_key()
        return self._secret

    def on_fit_start(self) -> None:
        """Gives every rank the secret key of rank zero, and the defences what they need to know of the clients."""
        self._secret = self.trainer.strategy.broadcast(self.secret)
        known = getattr(getattr(self.trainer, "datamodule", None), "client_known", None)
        for defense in self.defenses:
            defense.prepare(known)

    @property
    def server_manipulation(self) -> str | None:
        """Name of what the server sends in place of what the protocol says; None for an honest server."""
        return None

    @property
    def rounds(self) -> int | None:
        """Number of rounds after which the server ends the training; None where it never does."""
        return None

    def round_settings(self) -> dict[int, dict[str, Any]]:
        """Columns that scores of some rounds get, by round; these rounds are always recorded."""
        return {}

    def learns_from(self, round_number: int) -> bool:
        """Whether a round changes the global model."""
        return True

    @property
    def task(self) -> Task:
        """What the clients train."""
        raise NotImplementedError(f"{type(self).__name__} must give its task")

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Adds a validation batch to the task's metrics and returns them by name."""
        return {}

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """What happens between broadcast and training: the server shows, the clients choose."""
        return cohort

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """What the server showed each client; see `RoundRecord`."""
        hidden = self.hidden_rows
        rows = next((rows for name, rows in cohort.rows.items() if name not in hidden), None)
        return {} if rows is None else {"served": rows}

    def client_models(self, cohort: Cohort) -> Parameters:
        """Models that the server sends to one client each, ``(C, *shape)``; empty where all get the global one."""
        return {}

    def item_features(self, cohort: Cohort) -> Tensor | None:
        """``(I, F)`` features of the items that `served` numbers, where the server shows all clients the same."""
        return None

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What an evaluation may know of the cohort, ``(C, R)`` each, as `served` has it."""
        return {}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """What an evaluation may know of the clients themselves, ``(C, ...)`` each, e.g. their class counts."""
        return {}

    def priors(self, cohort: Cohort) -> dict[str, Tensor]:
        """What the server is assumed to know of each client beforehand, ``(C, ...)``; see `ServerView.priors`."""
        return {}

    def learner_description(self) -> dict[str, Any] | None:
        """Name and arguments of the public algorithm, for `modules.learners.registry`."""
        return None

    def public_parameters(self) -> Parameters:
        """The global model, as the server broadcasts it."""
        return {name: value.detach() for name, value in self.named_parameters()}

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """Public tables of which a client trains only some rows."""
        return ()

    @property
    def hidden_rows(self) -> tuple[str, ...]:
        """Row parameters that clients send whole: a defence noises every row, and which ones they train is theirs."""
        if self.rows_are_public:
            return ()
        public = tuple(self.public_parameters())
        noised = {name for defense in self.defenses for name in defense.noises_whole(public)}
        return tuple(name for name in self.row_parameters if name in noised)

    @property
    def sent_rows(self) -> tuple[str, ...]:
        """Row parameters of which clients send only the rows that they train."""
        return tuple(name for name in self.row_parameters if name not in self.hidden_rows)

    def public_description(self) -> dict[str, Any]:
        """What everybody may know of this training; the recording keeps it."""
        public = self.public_parameters()
        return {
            "learner": self.learner_description(),
            "releases": [
                {"clip": r.clip, "noise_scale": r.noise_scale, "parameters": list(r.parameters)}
                for r in self._releases()
            ],
            "row_parameters": list(self.sent_rows),
            "parameters": {
                name: {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
                for name, value in public.items()
            },
        }

    def setup(self, stage: str) -> None:
        """Refuses a precision under which the clients' written gradients and the server's step do not fit together.

        Raises:
            InputError: it is not one of `precisions`.
        """
        if self.trainer.precision not in self.precisions:
            raise InputError(
                expected=f"precision {' or '.join(self.precisions)} for {type(self).__name__}",
                found=str(self.trainer.precision),
                way_out="Leave --trainer.precision out.",
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The server's optimizer over the global model."""
        return self.server.build(self.parameters())

    def training_step(self, cohort: Cohort, batch_idx: int) -> None:
        """One communication round."""
        number = cohort.round
        model = {name: value.clone() for name, value in self.public_parameters().items()}
        cohort = self.interact(cohort, model)
        total, update, loss = self._updates_summed(cohort, model)
        total = self._over_ranks(total)
        add_background_noise(total, update.background_scale, secret=self.secret, seed=self.seed, round_number=number)
        for name, parameter in self.named_parameters():
            change = total.deltas[name].div_(-total.weight.clamp(min=1e-12))
            parameter.grad = change if self.learns_from(number) else None
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        optimizer.step()
        self.log("train/local_loss", loss, prog_bar=True, batch_size=max(len(cohort), 1), sync_dist=True)
        self.log("train/clients", float(len(cohort)), reduce_fx="sum", batch_size=1, sync_dist=True)
        self.round_record = self._record(cohort, update, model)

    def _updates_summed(self, cohort: Cohort, model: Parameters) -> tuple[WeightedSum, Update, Tensor]:
        """The weighted sum of what the clients send, what they send, and the mean of their losses."""
        parts, sums, losses, sent = self._parts(cohort), [], [], []
        for part in parts:
            update, loss = self.client_updates(part, model)
            weights = self._weights(part)
            sent.append(torch.ones_like(weights, dtype=torch.bool) if update.sent is None else update.sent)
            weights = weights * sent[-1]
            sums.append(weighted_sum(self.as_deltas(update, part, model), weights, model))
            losses.append(loss * len(part))
            if len(sums) == 2:
                sums = [sums[0].add(sums[1])]
        if len(parts) > 1:
            every = torch.cat(sent)
            who = None if bool(every.all()) else every
            update = dataclasses.replace(update, deltas={}, rows={}, sent=who, clients=cohort.clients)
        return sums[0], update, torch.stack(losses).sum() / max(len(cohort), 1)

    def _parts(self, cohort: Cohort) -> list[Cohort]:
        """The cohort in parts whose deltas fit the memory that a round may use; whole where somebody needs it whole."""
        read = any(getattr(callback, "reads_updates", False) for callback in self.trainer.callbacks)  # type: ignore[attr-defined]
        if read or any(defense.joint for defense in self.defenses) or len(cohort) == 0:
            return [cohort]
        hidden = self.hidden_rows
        width = {name: rows.shape[1] for name, rows in cohort.rows.items() if name not in hidden}
        numbers = sum(
            width.get(name, len(value)) * value[0].numel() if value.dim() else 1
            for name, value in self.public_parameters().items()
        )
        count = -(-len(cohort) * numbers // _NUMBERS_AT_ONCE)
        if count == 1:
            return [cohort]
        return [cohort.select(positions) for positions in torch.arange(len(cohort)).tensor_split(count)]

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """What the clients send, and the mean of their losses."""
        if len(cohort) == 0:
            return self._no_update(model), torch.zeros((), device=self.device)
        willing = self._willing(cohort, model)
        update, loss = self.local_updates(cohort, model, willing)

        @functools.cache
        def generators(position: int) -> torch.Generator:
            return generator_for(self.secret, "defense", self.seed, cohort.round, int(cohort.clients[position]))

        for defense in self.defenses:
            update = defense.protect(update, generators)
        own_view = functools.partial(self._own_view, cohort, model)
        for defense in self.defenses:
            update = defense.review(update, own_view, generators)
        return (update if bool(willing.all()) else hold_back(update, willing)), loss

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """What the clients have after training, before their defences change it, and the mean of their losses.

        Args:
            cohort: the clients, at least one.
            model: the global model.
            willing: ``(C,)`` which of them train; of the others nothing private may change.
        """
        own = {name: table[cohort.clients.cpu()].to(self.device) for name, table in self.private.items()}
        result = train_clients(
            self.task, model, own, cohort, self.local, seed=self.seed, defenses=self.defenses, spent=self._spent
        )
        self._spent = result
        for name, table in self.private.items():
            trained = cohort.clients[willing].cpu()
            table[trained] = result.private[name][willing].to(table.device)
        update = Update(result.deltas, dict(cohort.rows), clients=cohort.clients)
        return with_whole_tables(update, self.hidden_rows, model), result.losses.mean()

    def _willing(self, cohort: Cohort, model: Parameters) -> Tensor:
        """``(C,)`` the clients that train on what they were sent."""
        answers = [defense.willing(model, cohort.clients) for defense in self.defenses]
        everyone = torch.ones(len(cohort), dtype=torch.bool, device=self.device)
        return functools.reduce(torch.logical_and, [a.to(self.device) for a in answers if a is not None], everyone)

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """What the server averages: what was sent, but where clients send something else than deltas of the model."""
        return update

    def _record(self, cohort: Cohort, update: Update, model: Parameters) -> RoundRecord:
        participants = cohort.clients
        for defense in self.defenses:
            update, positions = defense.seen(update)
            cohort = cohort if positions is None else cohort.select(positions)
        truth = self.truth(cohort), self.client_truth(cohort)
        own = {f"{PRIOR}{name}": value for name, value in self.priors(cohort).items()}
        own |= {f"{CLIENT_MODEL}{name}": value for name, value in self.client_models(cohort).items()}
        items = self.item_features(cohort)
        return RoundRecord(cohort.round, cohort, participants, update, model, self.served(cohort), *truth, own, items)

    def _own_view(self, cohort: Cohort, model: Parameters, update: Update) -> tuple[ServerView, Tensor]:
        """What the server will see of the clients, and what they know themselves; see `defenses.base.OwnView`."""
        shown, items = self.served(cohort), self.item_features(cohort)
        view = ServerView(
            round=cohort.round,
            pseudonyms=cohort.clients,
            example_counts=cohort.counts,
            deltas=update.deltas,
            model=model,
            row_parameters=frozenset(self.sent_rows),
            served=shown.get("served"),
            lists=shown.get("lists"),
            features=shown.get("features") if items is None else features_of(items, shown["served"]),
            client_models=self.client_models(cohort) or None,
            releases=self._releases(),
            learner=learner_from(self.learner_description()),
        )
        return view, self.truth(cohort).get("labels", torch.zeros(len(cohort), 0))

    def _releases(self) -> tuple[Release, ...]:
        public = tuple(self.public_parameters())
        return tuple(release for defense in self.defenses for release in defense.releases(public))

    def _no_update(self, model: Parameters) -> Update:
        """What a rank sends that has no client in this round."""
        rows = {name: torch.zeros(0, 0, dtype=torch.int64, device=self.device) for name in self.sent_rows}
        deltas = {
            name: value.new_zeros((0, 0, *value.shape[1:]) if name in rows else (0, *value.shape))
            for name, value in model.items()
        }
        update = Update(deltas, rows, clients=torch.zeros(0, dtype=torch.int64, device=self.device))
        for defense in self.defenses:
            update = defense.protect(update, lambda _: torch.Generator())
        return update

    def _weights(self, cohort: Cohort) -> Tensor:
        counts = cohort.counts.to(torch.float32)
        return counts if self.weighting == "examples" else torch.ones_like(counts)

    def _over_ranks(self, total: WeightedSum) -> WeightedSum:
        if self.trainer.world_size > 1:
            for tensor in total.tensors():
                torch.distributed.all_reduce(tensor)
        return total

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Puts the secret key and every client's private parameters, each rank its rows, into the checkpoint."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["secret"] = self.secret.hex()
        checkpoint["private"] = {name: self._whole_table(table) for name, table in self.private.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the secret key and the clients' private parameters back.

        Raises:
            InputError: the checkpoint has none.
        """
        if not {"secret", "private"} <= checkpoint.keys():
            raise InputError(
                expected="a checkpoint of a federated training, with its secret key and private parameters",
                found="one without",
                way_out="Give a checkpoint that this version of train.py wrote, or train anew without --ckpt_path.",
            )
        self._secret = bytes.fromhex(checkpoint["secret"])
        self.private = {name: table.clone() for name, table in checkpoint["private"].items()}

    def _whole_table(self, table: Tensor) -> Tensor:
        world = self.trainer.world_size
        if world == 1:
            return table.clone()
        mine = torch.arange(table.shape[0]) % world == self.trainer.global_rank
        whole = (table * mine.reshape(-1, *[1] * (table.dim() - 1))).to(self.device)
        torch.distributed.all_reduce(whole)
        return whole.cpu()
