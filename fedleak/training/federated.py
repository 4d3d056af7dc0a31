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
from fedleak.defenses.base import Examples, Train, Update, hold_back, shown_counts, with_whole_tables
from fedleak.training.data import FederatedDataModule, data_of
from fedleak.training.learner import Federation as Federation
from fedleak.training.learner import Learner
from fedleak.training.learner import Unpack as Unpack
from fedleak.training.private_tables import gathered_table
from fedleak.training.round_parts import parts_of, update_of_nobody
from fedleak.training.round_record import RoundRecord
from fedleak.training.server_optimizer import WeightedSum, add_background_noise, weighted_sum
from fedleak.training.server_view import own_view, record_round


class FederatedModule(Learner):
    """Federated training of any task; `Learner` has the options and the hooks that a subclass implements.

    References:
        [McMahan17] (Algorithm 1).

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
        data = data_of(self.trainer)
        self._data = data
        own_devices = None
        if data is not None:
            data.secret = self._secret
            own_devices = data.client_known
        for defense in self.defenses:
            defense.prepare(own_devices)
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
        # The round of FedAvg: local training, aggregation over clients and ranks, one step of the server.
        total, update, loss = self._updates_summed(cohort, model)
        if self.trainer.world_size > 1:
            for tensor in total.tensors():
                torch.distributed.all_reduce(tensor)
        add_background_noise(total, update.background_scale, secret=self.secret, seed=self.seed, round_number=number)
        # FedAvg: the optimizer subtracts the gradient, so this is minus the weighted mean of the deltas.
        for name, parameter in self.named_parameters():
            change = total.deltas[name].div_(-total.weight.clamp(min=1e-12))
            parameter.grad = change if self.learns_from(number) else None
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        optimizer.step()
        self.log("train/local_loss", loss, prog_bar=True, batch_size=max(len(cohort), 1), sync_dist=True)
        self.log("train/clients", float(len(cohort)), reduce_fx="sum", batch_size=1, sync_dist=True)
        return {"record": record_round(self, self._data, cohort, update, model)}

    def _updates_summed(self, cohort: Cohort, model: Parameters) -> tuple[WeightedSum, Update, Tensor]:
        """Weighted sum of the deltas, the update itself, and the mean loss."""
        parts = parts_of(cohort, self, reads_updates=self.reads_updates)
        sums = []
        losses = []
        sent = []
        for part in parts:
            update, loss = self.client_updates(part, model)
            weights = shown_counts(self.defenses, part.counts).to(torch.float32)
            if self.weighting != "examples":
                weights = torch.ones_like(weights)
            sent.append(torch.ones_like(weights, dtype=torch.bool) if update.sent is None else update.sent)
            weights = weights * sent[-1]
            sums.append(weighted_sum(self.as_deltas(update, part, model), weights, model))
            losses.append(loss * len(part))
            # Only one sum is kept, because each has the size of the model.
            if len(sums) == 2:
                sums = [sums[0].add(sums[1])]
        if len(parts) > 1:
            every = torch.cat(sent)
            update = dataclasses.replace(
                update,
                deltas={},
                rows={},
                sent=None if bool(every.all()) else every,
                clients=cohort.clients,
            )
        return sums[0], update, torch.stack(losses).sum() / max(len(cohort), 1)

    def client_updates(self, cohort: Cohort, model: Parameters) -> tuple[Update, Tensor]:
        """What the clients send after their defences, and the mean of their losses."""
        if len(cohort) == 0:
            return update_of_nobody(self, model), torch.zeros((), device=self.device)
        # A client that refuses the model takes part in the computation; its update is held back at the end.
        willing = self._willing(cohort, model)
        update, loss = self._trained(cohort, model, willing)

        @functools.cache
        def generators(position: int) -> torch.Generator:
            return generator_for(self.secret, "defense", self.seed, cohort.round, int(cohort.clients[position]))

        # Each client protects its own update; then defences may look at all of them, as an attack of their own would.
        for defense in self.defenses:
            update = defense.protect(update, generators)
        of_clients = functools.partial(own_view, self, cohort, model)
        for defense in self.defenses:
            update = defense.review(update, of_clients, generators)
        if bool(willing.all()):
            return update, loss
        return hold_back(update, willing), loss

    def _trained(self, cohort: Cohort, model: Parameters, willing: Tensor) -> tuple[Update, Tensor]:
        """Update of local training, as the defences have the clients train, and the mean of their losses.

        The loss is that of the last training, if a defence trains the clients several times.
        """
        loss = None

        def trained(examples: Examples) -> Update:
            nonlocal loss
            if loss is not None:
                self._spent = None  # the defence still needs the update of the training before
            changed_cohort = dataclasses.replace(cohort, examples=dict(examples))
            update, loss = self.local_updates(changed_cohort, model, willing)
            return update

        # The first defence's training is innermost: each calls the one before, perhaps several times.
        train: Train = trained
        for defense in self.defenses:
            train = functools.partial(defense.train_locally, mask=cohort.mask, clients=cohort.clients, train=train)
        update = train(cohort.examples)
        assert loss is not None, "a defence returned an update without a training"
        trained_clients = cohort.clients[willing].cpu()
        # Only clients that trained keep what they learned of themselves.
        for name, after in update.private.items():
            table = self.private[name]
            table[trained_clients] = after[willing].to(table.device)
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
        private = {}
        for name, table in self.private.items():
            private[name] = table[cohort.clients.cpu()].to(self.device)
        algorithm = self.algorithm
        assert isinstance(algorithm, Task), f"{type(self).__name__} must train its clients itself"
        if isinstance(algorithm, DescentAlgorithm):
            result = algorithm.train(
                model,
                cohort,
                private=private,
                seed=self.seed,
                noise_key=self.secret,
                defenses=self.defenses,
                spent=self._spent,
            )
        else:  # e.g. FPDGD's, which has no options of local training but the learning rate that recordings name
            result = train_clients(
                algorithm,
                model,
                private,
                cohort,
                self.local,
                seed=self.seed,
                noise_key=self.secret,
                defenses=self.defenses,
                spent=self._spent,
            )
        self._spent = result
        update = dataclasses.replace(result, losses=torch.zeros(0))
        return with_whole_tables(update, self.hidden_rows, model), result.losses.mean()

    def _willing(self, cohort: Cohort, model: Parameters) -> Tensor:
        """``(C,)`` True for clients that train on what they were sent."""
        willing = torch.ones(len(cohort), dtype=torch.bool, device=self.device)
        for defense in self.defenses:
            answer = defense.willing(model, cohort.clients)
            if answer is not None:
                willing = torch.logical_and(willing, answer.to(self.device))
        return willing

    def as_deltas(self, update: Update, cohort: Cohort, model: Parameters) -> Update:
        """Deltas that the server averages, computed from what was sent; overridden if clients do not send deltas."""
        return update

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the secret key and the private parameters of all clients, gathered over ranks."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["secret"] = self.secret.hex()
        gathered = functools.partial(gathered_table, self.trainer, device=self.device)
        checkpoint["private"] = {name: gathered(table) for name, table in self.private.items()}

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
        is_hexadecimal = isinstance(secret, str) and re.fullmatch("([0-9a-f]{2})+", secret) is not None
        require(
            is_hexadecimal, "a checkpoint with a secret key in hexadecimal digits", repr(secret)[:20], "Train anew."
        )
        self._secret = bytes.fromhex(secret)
        self.private = {name: table.clone() for name, table in checkpoint["private"].items()}
