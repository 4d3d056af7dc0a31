"""The round: broadcast, local training, the clients' defences, aggregation, one step of the server's optimizer.

One Trainer step is one communication round. The averaged delta becomes ``p.grad`` and the server's optimizer steps
once, so ``global_step`` is the number of rounds, and ``max_steps``, checkpoints and resuming work as in Lightning.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedleak.client.algorithm import DescentAlgorithm
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_training import train_clients
from fedleak.client.engine.task import Task
from fedleak.core.errors import require
from fedleak.core.seeding import generator_for, secret_key
from fedleak.core.view import RoundView, features_of
from fedleak.defenses.base import Examples, Train, Update, hold_back, shown_counts, with_whole_tables
from fedleak.training.data import FederatedDataModule, data_of
from fedleak.training.learner import Federation as Federation
from fedleak.training.learner import Learner
from fedleak.training.learner import Unpack as Unpack
from fedleak.training.round_record import RoundRecord
from fedleak.training.server_optimizer import WeightedSum, add_background_noise, weighted_sum
from fedleak_recorder.format import CLIENT_MODEL, PRIOR

_NUMBERS_AT_ONCE = 2**26
"""Largest number of delta entries that a round keeps at once if no callback reads them: 256 MiB."""


class FederatedModule(Learner):
    """Federated training of any task; `Learner` has the options and the hooks that a subclass implements.

    References:
        B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-Efficient Learning of Deep
        Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629 (Algorithm 1).

    Example:
        >>> import torch
        >>> from fedleak import FederatedModule
        >>> from fedleak.client import Cohort, DescentAlgorithm, LocalTraining
        >>> class MeanAlgorithm(DescentAlgorithm):
        ...     '''Squared distance of a client's values from the mean.'''
        ...
        ...     def loss(self, parameters, examples, mask):
        ...         squares = (examples["value"] - parameters["mean"]).square()
        ...         return (squares * mask).sum() / mask.sum().clamp(min=1)
        >>> class Mean(FederatedModule):
        ...     '''The mean of all clients' values.'''
        ...
        ...     def __init__(self):
        ...         super().__init__(local=LocalTraining(learning_rate=0.5))
        ...         self.algorithm = MeanAlgorithm(local=self.local)
        ...         self.build_with()
        ...
        ...     def build(self):
        ...         self.mean = torch.nn.Parameter(torch.zeros(()))
        >>> values, mask = torch.tensor([[1.0, 3.0]]), torch.ones(1, 2, dtype=torch.bool)
        >>> cohort = Cohort(round=0, clients=torch.tensor([0]), examples={"value": values}, mask=mask)
        >>> update, loss = Mean().client_updates(cohort, {"mean": torch.zeros(())})
        >>> update.deltas["mean"]  # half a step of 2 (0 - 2), the gradient at 0
        tensor([2.])
    """

    reads_updates = False
    """Whether a callback reads the deltas of all clients, so that a cohort is never split to save memory."""
    _secret: bytes | None = None
    _data: FederatedDataModule | None = None
    """The data that it is trained on, for what is true of the clients themselves."""
    _spent: Update | None = None
    """The previous round's result; its memory is reused after the round was recorded."""

    @property
    def secret(self) -> bytes:
        """Key of secret draws: cohorts, noise of the clients' defences, pseudonyms, order of messages.

        It is the same on every rank and part of the checkpoint; see `fedleak.core.seeding.secret_key`.
        """
        if self._secret is None:
            self._secret = secret_key()
        return self._secret

    @secret.setter
    def secret(self, key: bytes) -> None:
        self._secret = key

    def on_fit_start(self) -> None:
        """Broadcasts rank zero's secret key, gives it to the data, and prepares the defences with what clients know."""
        self._secret = self.trainer.strategy.broadcast(self.secret)
        self._data = data = data_of(self.trainer)
        if data is not None:
            data.secret = self._secret
        known = None if data is None else data.client_known
        for defense in self.defenses:
            defense.prepare(known)
            defense.set_key(self.secret)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The server's optimizer over the global model, which is built.

        Raises:
            InputError: the class gives no `algorithm`.
        """
        require("algorithm" in dir(self), f"algorithm in {type(self).__name__}", "none", "See CONTRIBUTING, A learner.")
        return self.server.build(self.parameters())

    def training_step(self, cohort: Cohort, batch_idx: int) -> dict[str, RoundRecord]:
        """One communication round; Lightning hands its ``record`` to the callbacks."""
        number = cohort.round
        model = {name: value.clone() for name, value in self.public_parameters().items()}
        model = self.send(cohort, model)
        cohort = self.interact(cohort, model)
        total, update, loss = self._updates_summed(cohort, model)
        if self.trainer.world_size > 1:
            for tensor in total.tensors():
                torch.distributed.all_reduce(tensor)
        add_background_noise(total, update.background_scale, secret=self.secret, seed=self.seed, round_number=number)
        for name, parameter in self.named_parameters():
            change = total.deltas[name].div_(-total.weight.clamp(min=1e-12))
            parameter.grad = change if self.learns_from(number) else None
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        optimizer.step()
        self.log("train/local_loss", loss, prog_bar=True, batch_size=max(len(cohort), 1), sync_dist=True)
        self.log("train/clients", float(len(cohort)), reduce_fx="sum", batch_size=1, sync_dist=True)
        return {"record": self._record(cohort, update, model)}

    def _updates_summed(self, cohort: Cohort, model: Parameters) -> tuple[WeightedSum, Update, Tensor]:
        """Weighted sum of the deltas, the update itself, and the mean loss."""
        parts, sums, losses, sent = self._parts(cohort), [], [], []
        for part in parts:
            update, loss = self.client_updates(part, model)
            counts = shown_counts(self.defenses, part.counts).to(torch.float32)
            weights = counts if self.weighting == "examples" else torch.ones_like(counts)
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
        """Parts of the cohort whose deltas fit in memory; one part if a callback or a defence reads all deltas."""
        if self.reads_updates or any(defense.joint for defense in self.defenses) or len(cohort) == 0:
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
        """What the clients send after their defences, and the mean of their losses."""
        if len(cohort) == 0:
            return self._no_update(model), torch.zeros((), device=self.device)
        willing = self._willing(cohort, model)
        update, loss = self._trained(cohort, model, willing)

        @functools.cache
        def generators(position: int) -> torch.Generator:
            return generator_for(self.secret, "defense", self.seed, cohort.round, int(cohort.clients[position]))

        for defense in self.defenses:
            update = defense.protect(update, generators)
        own_view = functools.partial(self._own_view, cohort, model)
        for defense in self.defenses:
            update = defense.review(update, own_view, generators)
        return (update if bool(willing.all()) else hold_back(update, willing)), loss

    def _trained(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """Update of local training, as the defences have the clients train, and the mean of their losses.

        The loss is that of the last training, if a defence trains the clients several times.
        """
        loss = None

        def trained(examples: Examples) -> Update:
            nonlocal loss
            if loss is not None:
                self._spent = None  # the defence still needs the update of the training before
            own = dataclasses.replace(cohort, examples=dict(examples))
            update, loss = self.local_updates(own, model, willing)
            return update

        train: Train = trained
        for defense in self.defenses:
            train = functools.partial(defense.train_locally, mask=cohort.mask, clients=cohort.clients, train=train)
        update = train(cohort.examples)
        assert loss is not None, "a defence returned an update without a training"
        places = cohort.clients[willing].cpu()
        for name, after in update.private.items():
            table = self.private[name]
            table[places] = after[willing].to(table.device)
        return dataclasses.replace(update, private={}), loss

    def local_updates(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """Update of local training, before the clients' defences change it, and the mean of their losses.

        Args:
            cohort: the clients, at least one.
            model: the model that was sent, see `Learner.send`.
            willing: ``(C,)`` True for clients that train.

        Returns:
            The update with the private parameters of all, of which those of clients that train replace the old ones.
        """
        own = {name: table[cohort.clients.cpu()].to(self.device) for name, table in self.private.items()}
        algorithm, key, defenses, spent = self.algorithm, self.secret, self.defenses, self._spent
        assert isinstance(algorithm, Task), f"{type(self).__name__} must train its clients itself"
        if isinstance(algorithm, DescentAlgorithm):
            result = algorithm.train(
                model, cohort, private=own, seed=self.seed, noise_key=key, defenses=defenses, spent=spent
            )
        else:  # e.g. FPDGD's, which has no options of local training but the learning rate that recordings name
            result = train_clients(
                algorithm, model, own, cohort, self.local, seed=self.seed, noise_key=key, defenses=defenses, spent=spent
            )
        self._spent = result
        update = dataclasses.replace(result, losses=torch.zeros(0))
        return with_whole_tables(update, self.hidden_rows, model), result.losses.mean()

    def _willing(self, cohort: Cohort, model: Parameters) -> Tensor:
        """``(C,)`` True for clients that train on what they were sent."""
        answers = [defense.willing(model, cohort.clients) for defense in self.defenses]
        everyone = torch.ones(len(cohort), dtype=torch.bool, device=self.device)
        return functools.reduce(torch.logical_and, [a.to(self.device) for a in answers if a is not None], everyone)

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Deltas that the server averages, computed from what was sent; overridden if clients do not send deltas."""
        return update

    def _record(self, cohort: Cohort, update: Update, model: Parameters) -> RoundRecord:
        participants, examples = cohort.clients, self.examples(cohort)
        contributors = cohort.clients[:, None]
        for defense in self.defenses:
            groups = defense.contributors(len(cohort))
            update, positions = defense.server_sees(update)
            if positions is not None:
                contributors = contributors[positions[:, None] if groups is None else groups].flatten(1)
                cohort = cohort.select(positions)
                examples = examples and examples.joined(positions[:, None] if groups is None else groups)
        known, truth, facts = self.priors(cohort), self.truth(cohort), self.client_truth(cohort)
        facts = facts if examples is None else facts | self.message_truth(examples)
        for defense in self.defenses:
            seen, true = defense.recorded_facts(cohort.clients)
            known, facts = known | seen, facts | true
        if self._data is not None:
            facts = facts | self._data.truth_of(cohort.clients.cpu())
        own = {f"{PRIOR}{name}": value for name, value in known.items()}
        own |= {f"{CLIENT_MODEL}{name}": value for name, value in self.client_models(cohort).items()}
        shown, items = self.served(cohort), self.item_features(cohort)
        return RoundRecord(
            cohort.round,
            cohort,
            participants,
            update,
            model,
            shown,
            truth,
            facts,
            own,
            items,
            examples,
            contributors,
        )

    def _own_view(self, cohort: Cohort, model: Parameters, update: Update) -> tuple[RoundView, Tensor]:
        """Server view and ground truth of the clients' own updates, see `fedleak.defenses.base.OwnView`."""
        shown, items = self.served(cohort), self.item_features(cohort)
        view = RoundView(
            round=cohort.round,
            pseudonyms=cohort.clients,
            example_counts=shown_counts(self.defenses, cohort.counts),
            deltas=update.deltas,
            model=model,
            row_parameters=frozenset(self.sent_rows),
            served=shown.get("served"),
            lists=shown.get("lists"),
            features=shown.get("features") if items is None else features_of(items, shown["served"]),
            client_models=self.client_models(cohort) or None,
            releases=self.releases,
            algorithm=self.algorithm,
        )
        return view, self.truth(cohort).get("labels", torch.zeros(len(cohort), 0))

    def _no_update(self, model: Parameters) -> Update:
        """Empty update of a rank without a client in this round."""
        rows = {name: torch.zeros(0, 0, dtype=torch.int64, device=self.device) for name in self.sent_rows}
        deltas = {
            name: value.new_zeros((0, 0, *value.shape[1:]) if name in rows else (0, *value.shape))
            for name, value in model.items()
        }
        update = Update(deltas, rows, clients=torch.zeros(0, dtype=torch.int64, device=self.device))
        for defense in self.defenses:
            update = defense.protect(update, lambda _: torch.Generator())
        return update

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the secret key and the private parameters of all clients, gathered over ranks."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["secret"] = self.secret.hex()
        checkpoint["private"] = {name: self._whole_table(table) for name, table in self.private.items()}

    def saved_tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Also the private parameters of all clients."""
        return {**super().saved_tensors(), "private": self.private}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the secret key and the clients' private parameters.

        Raises:
            InputError: the checkpoint does not contain them.
        """
        missing = sorted({"secret", "private"} - checkpoint.keys())
        require(
            not missing,
            "a checkpoint of a federated training, with its secret key and private parameters",
            f"a file without {', '.join(missing)}",
            "Give a checkpoint that this version of fedleak wrote, or train anew without --ckpt_path.",
        )
        secret = checkpoint["secret"]
        right = isinstance(secret, str) and re.fullmatch("([0-9a-f]{2})+", secret) is not None
        require(right, "a checkpoint with a secret key in hexadecimal digits", repr(secret)[:20], "Train anew.")
        self._secret = bytes.fromhex(secret)
        self.private = {name: table.clone() for name, table in checkpoint["private"].items()}

    def _whole_table(self, table: Tensor) -> Tensor:
        world = self.trainer.world_size
        if world == 1:
            return table.clone()
        mine = torch.arange(table.shape[0]) % world == self.trainer.global_rank
        whole = (table * mine.reshape(-1, *[1] * (table.dim() - 1))).to(self.device)
        torch.distributed.all_reduce(whole)
        return whole.cpu()
