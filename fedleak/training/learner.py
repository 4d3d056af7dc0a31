"""Base of every learner: its options, what a subclass declares, and its description in a recording."""

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypedDict, TypeVar
from typing import Unpack as Unpack

from torch import Tensor
from torchmetrics import Metric

from fedleak.client.algorithm import ClientAlgorithm, ExampleAlgorithm
from fedleak.client.cohort import Cohort
from fedleak.client.engine.fast.gradients import Parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.described import described
from fedleak.core.release import Release
from fedleak.defenses.base import Defense
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.server.deviation import Deviation
from fedleak.training.lightning.built_from_data import BuiltFromData
from fedleak.training.round_record import TrainingExamples
from fedleak.training.server_optimizer import ServerOptimizer

Weighting = Literal["examples", "uniform"]
_Kind = TypeVar("_Kind", bound=Defense)


class Federation(TypedDict, total=False):
    """Keyword arguments that every learner passes on to `FederatedModule`."""

    server: ServerOptimizer
    defenses: Sequence[Defense]
    weighting: Weighting | None
    seed: int


class Learner(BuiltFromData):
    """Options and hooks of a learner; `fedleak.training.federated.FederatedModule` adds the round.

    A subclass must give its `algorithm`; every other hook has a default. Sizes that come from the data are optional
    arguments of a subclass, see `BuiltFromData`.

    Args:
        local: how clients train.
        server: how the server applies the averaged delta.
        defenses: defences of the clients, in the order in which they apply them.
        weighting: whether a client's weight is its number of examples or one; None for the default `weighs_by`.
        seed: seed of every draw.
    """

    manipulation: Deviation | None = None
    """What a malicious server shows or sends in place of what an honest one does; None for an honest server."""

    rows_are_public: ClassVar[bool] = True
    """Whether the rows that a client trains are those that the server served; False if they reveal the client's data,
    e.g. which words it has."""

    precisions: ClassVar[tuple[str, ...]] = ("32-true",)

    algorithm: ClientAlgorithm
    """What the clients run, which attacks simulate too; every subclass gives it."""

    weighs_by: ClassVar[Weighting] = "examples"
    """Default weighting."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Lets the parser take the arguments of `Learner`: it takes no defaults from a TypedDict, and refuses one that
        contains a dataclass.
        """
        super().__init_subclass__(**options)
        for parameter in inspect.signature(cls.__init__).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and "__init__" in vars(cls):
                cls.__init__.__annotations__[parameter.name] = Any

    def __init__(
        self,
        *,
        local: LocalTraining,
        server: ServerOptimizer = ServerOptimizer(),  # noqa: B008 - frozen
        defenses: Sequence[Defense] = (),
        weighting: Weighting | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.local = local
        self.server = server
        self.defenses = list(defenses)
        for earlier, defense in enumerate(self.defenses):
            defense.check_order(self.defenses[:earlier])
        self.weighting = weighting or self.weighs_by
        self.seed = seed
        self.private: Parameters = {}
        """Tables of the clients' private parameters, ``(clients, ...)``, on the CPU; never sent. Each rank keeps the
        rows of the clients that it trains, and DDP must not broadcast them, so they are not buffers."""

    def interact(self, cohort: Cohort, model: Parameters) -> Cohort:
        """Interaction between broadcast and training: the server shows items, the clients choose."""
        return cohort

    def send(self, cohort: Cohort, model: Parameters) -> Parameters:
        """The model that the server sends in place of the global one, before local training.

        If it sends several, it returns the first of them, and `client_models` gives each client's.
        """
        return model

    def served(self, cohort: Cohort) -> dict[str, Tensor]:
        """What the server showed each client, see `RoundRecord`."""
        hidden = self.hidden_rows
        rows = next((rows for name, rows in cohort.rows.items() if name not in hidden), None)
        if rows is None:
            return {}
        return {"served": rows}

    def item_features(self, cohort: Cohort) -> Tensor | None:
        """``(I, F)`` features of the items that `served` refers to, if the server shows all clients the same."""
        return None

    def client_models(self, cohort: Cohort) -> Parameters:
        """Models that the server sends to one client each, ``(C, *shape)``; empty if all get the global model."""
        return {}

    def truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Ground truth of the served items, ``(C, R)`` each."""
        return {}

    def client_truth(self, cohort: Cohort) -> dict[str, Tensor]:
        """Ground truth of the clients themselves, ``(C, ...)`` each, e.g. their class counts."""
        return {}

    def message_truth(self, examples: TrainingExamples) -> dict[str, Tensor]:
        """Ground truth of messages, ``(C, ...)`` each, from the examples of all clients whose updates they sum up."""
        return {}

    def examples(self, cohort: Cohort) -> TrainingExamples | None:
        """The clients' training examples, which attacks may reconstruct; None if there are none."""
        return None

    def priors(self, cohort: Cohort) -> dict[str, Tensor]:
        """Prior knowledge of the server on each client, ``(C, ...)`` each, see `RoundView.priors`."""
        return {}

    def update_metrics(self, batch: dict[str, Tensor]) -> dict[str, Metric]:
        """Utility metrics by name, after adding a validation batch."""
        return {}

    @property
    def server_manipulation(self) -> str | None:
        """Name of a malicious server's manipulation; None for an honest server."""
        if self.manipulation is None:
            return None
        return self.manipulation.name

    @property
    def rounds(self) -> int | None:
        """Number of rounds after which the server ends the training; None if it never does."""
        return None

    def round_settings(self) -> dict[int, dict[str, Any]]:
        """Setting columns of the scores of some rounds, by round; these rounds are always recorded."""
        return {}

    def learns_from(self, round_number: int) -> bool:
        """Whether a round changes the global model."""
        return True

    def public_parameters(self) -> Parameters:
        """The global model, as the server broadcasts it."""
        return {name: value.detach() for name, value in self.named_parameters()}

    @property
    def row_parameters(self) -> tuple[str, ...]:
        """Public tables of which a client trains only some rows."""
        return ()

    @property
    def hidden_rows(self) -> tuple[str, ...]:
        """Row parameters that clients send whole, because a defence adds noise to every row."""
        if self.rows_are_public:
            return ()
        public = tuple(self.public_parameters())
        noised = {name for defense in self.defenses for name in defense.noises_whole(public)}
        return tuple(name for name in self.row_parameters if name in noised)

    @property
    def sent_rows(self) -> tuple[str, ...]:
        """Row parameters of which clients send only the rows that they train."""
        return tuple(name for name in self.row_parameters if name not in self.hidden_rows)

    @property
    def releases(self) -> tuple[Release, ...]:
        """Public clipping and noise of the clients' defences."""
        public = tuple(self.public_parameters())
        return tuple(release for defense in self.defenses for release in defense.releases(public))

    @property
    def update_l1(self) -> UpdateL1 | None:
        """The defence whose penalty is part of the local loss."""
        return self.defense_of(UpdateL1)

    def defense_of(self, kind: type[_Kind]) -> _Kind | None:
        """The first defence of a kind."""
        return next((defense for defense in self.defenses if isinstance(defense, kind)), None)

    def learner_description(self) -> dict[str, Any] | None:
        """Name and arguments from which `fedleak.recordings.named_algorithm` rebuilds the public algorithm.

        A learner from outside the project is named by its class path. None if a defence changes the loss in a way that
        a simulation cannot replay, or if attacks could not give its clients examples.
        """
        simulated = [self.update_l1, *self.algorithm.training_defenses]
        for defense in self.defenses:
            changes_training = type(defense).penalty is not Defense.penalty or defense.changes_steps()
            if changes_training and not any(defense is known_defense for known_defense in simulated):
                return None
        if self.algorithm.name:
            return {"name": self.algorithm.name, "arguments": self.algorithm.arguments()}
        if not isinstance(self.algorithm, ExampleAlgorithm):
            return None
        arguments = described(type(self), self.hparams)
        del arguments["_instantiator"]
        return {"name": arguments.pop("_class_path"), "arguments": arguments}

    def public_description(self) -> dict[str, Any]:
        """Public knowledge of this training, as the manifest of a recording holds it."""
        parameters = {}
        for name, value in self.public_parameters().items():
            parameters[name] = {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
        return {
            "learner": self.learner_description(),
            "releases": [release.described() for release in self.releases],
            "row_parameters": list(self.sent_rows),
            "parameters": parameters,
        }

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Logs `update_metrics`."""
        metrics = self.update_metrics(batch)
        batch_size = len(next(iter(batch.values())))
        for name, metric in metrics.items():
            self.log(name, metric, on_epoch=True, prog_bar=True, batch_size=batch_size)
