"""RAIFLE's federated online learning to rank, tables VII, IX, XI and XIV, as an experiment."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks.base import Attack
from attacks.interactions.list_priors import ListPrior
from attacks.manipulation.base import Manipulation
from attacks.manipulation.codebook import Codebook
from attacks.manipulation.fingerprint import Fingerprint
from attacks.manipulation.noise import NoiseInjection
from attacks.manipulation.permutation import Permutation
from datamodules.base import FederatedDataModule
from datamodules.deltas import Recording
from defenses.base import Defense
from defenses.local_dp import LocalDP
from errors import InputError
from experiments.aggregates import AGGREGATES
from experiments.base import RANKING_ATTACKS, Choice, PaperCell
from experiments.options import as_number, check_names, plain_number
from experiments.ranking_bounds import bound_rows
from experiments.ranking_table import RANKERS, RankingTable, ranking_data
from experiments.recorded_cell import RecordedCell
from modules.federated import FederatedModule
from modules.fpdgd import FPDGD
from reports.evaluation import Evaluation, with_people

MANIPULATIONS: dict[str, Callable[[], Manipulation] | None] = {
    "none": None,
    "noise": NoiseInjection,
    "noise-in-30-percent": functools.partial(NoiseInjection, share_of_features=0.3),
    "half-noise": functools.partial(NoiseInjection, share_of_real=0.5),
    "tenth-noise": functools.partial(NoiseInjection, share_of_real=0.9),
    "fingerprint": Fingerprint,
    "permutation": Permutation,
    "permutation-over-lists": functools.partial(Permutation, among="client"),
    "codebook": Codebook,
}


@dataclass(frozen=True)
class RankingExperiment(RankingTable):
    """A table: every ranker with every click model, number of queries, budget and manipulation.

    Attributes:
        experiment: its name.
        metrics: the metrics it reports.
        data: data sets by folder name.
        rankers: ``linear`` or ``neural-UNITS``.
        click_models: how clients click.
        queries: queries of a client.
        epsilons: privacy budgets of local DP.
        manipulations: by what the server sends (``none``, ``noise``, ``codebook`` ...), the attacks on it.
        attacks: constructor arguments of the attacks, by name.
        limits: by slow attack, how many victims of each recording it attacks, drawn at random.
        users: least number of users in a cell; the queries are dealt out as often as that takes.
        participants: clients in a secure aggregate; 1 for none.
        aggregates: how the server goes about secure aggregates, see `experiments.aggregates`.
        priors: what the attacks that take a prior believe of the clicks, each in a cell of its own; none for what
            `attacks` says of each.
        bounds: manipulations beside which stand the bits that a noisy update can carry and those of the clicks.
        also: further parts of the table, each with what differs in it.
        clip: L2 norm to which an update is clipped under local DP.
        delta: delta of local DP.
    """

    small_cells = True
    experiment: str
    metrics: list[str]
    data: list[str]
    rankers: list[str]
    click_models: list[str]
    queries: list[int]
    epsilons: list[float]
    manipulations: dict[str, list[str]]
    attacks: dict[str, dict[str, Any]]
    limits: dict[str, int] = field(default_factory=dict)
    users: int = 100
    participants: list[int] = field(default_factory=lambda: [1])
    aggregates: list[str] = field(default_factory=lambda: ["noise-only"])
    priors: list[ListPrior | None] = field(default_factory=lambda: [None])
    bounds: list[str] = field(default_factory=list)
    clip: float = 0.25
    delta: float = 1e-8
    also: list["RankingExperiment"] = field(default_factory=list)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> "RankingExperiment":
        """From a configuration."""
        own = {key: value for key, value in content.items() if key != "also"}
        parts = [cls.parse({**own, **part}) for part in content.get("also", [])]
        epsilons = [as_number("epsilon", value) for value in own["epsilons"]]
        made = cls(**{**own, "epsilons": epsilons, "also": parts})
        check_names("aggregate", made.aggregates, list(AGGREGATES))
        made.check_columns(RANKING_ATTACKS)
        check_names("manipulation", list(made.manipulations), list(MANIPULATIONS))
        for names in made.manipulations.values():
            check_names("attack", names, list(made.attacks))
        if min(made.epsilons) <= 0:
            raise InputError(expected="epsilons > 0", found=str(min(made.epsilons)), way_out="inf means no noise.")
        return made

    @property
    def known_attacks(self) -> Mapping[str, type[Attack]]:
        """See `PaperExperiment.known_attacks`."""
        return RANKING_ATTACKS

    def cells(self, choice: Choice) -> Iterator[PaperCell]:
        """See `PaperExperiment.cells`."""
        columns = itertools.product(
            self.rankers,
            self.click_models,
            self.queries,
            self.epsilons,
            self.participants,
            self.aggregates,
            self.manipulations,
            self.priors,
        )
        for data, column, seed in itertools.product(self.names(choice), list(columns), range(choice.seeds)):
            yield RankingCell(self, data, choice, seed, self, *column)
        for part in self.also:
            yield from part.cells(choice)


@dataclass(frozen=True)
class RankingCell(RecordedCell):
    """A cell of a table on rankings."""

    table: RankingExperiment
    ranker: str
    click_model: str
    queries: int
    epsilon: float
    participants: int
    aggregate: str
    manipulation: str
    prior: ListPrior | None

    @property
    def victims_per_view(self) -> int:
        """See `RecordedCell.victims_per_view`."""
        return 256

    @property
    def key(self) -> str:
        """See `PaperCell.key`."""
        cell = f"{self.data}-{self.ranker}-{self.click_model}-q{self.queries}-eps{self.epsilon:g}-{self.manipulation}"
        cell += f"-of{self.participants}" if self.participants > 1 else ""
        cell += f"-{self.aggregate}" if self._targets else ""
        cell += f"-{self.prior}" if self.prior else ""
        return f"{cell}-seed{self.seed}-victims{self.choice.victims or 'all'}"

    @property
    def setting(self) -> dict[str, Any]:
        """See `PaperCell.setting`."""
        return {
            "data": self.data,
            "ranker": self.ranker,
            "click_model": self.click_model,
            "queries": self.queries,
            "epsilon": plain_number(self.epsilon),
            "manipulation": self.manipulation,
            **({"participants": self.participants} if self.participants > 1 else {}),
            **({"aggregate": self.aggregate} if self._targets else {}),
            **({"prior": self.prior} if self.prior else {}),
        }

    def make_attacks(self) -> list[Attack]:
        names = self.table.manipulations[self.manipulation]
        if self.prior is None:
            return self.experiment.make_attacks(names)
        believing = {name: {**self.table.attacks[name], "prior": self.prior} for name in names}
        return dataclasses.replace(self.table, attacks=believing).make_attacks()

    @property
    def _targets(self) -> int:
        return AGGREGATES[self.aggregate].targets

    @functools.cached_property
    def _users(self) -> int:
        """Clients among whom all queries are dealt out once."""
        return ranking_data(self.data, self.choice.root, queries_per_client=self.queries).num_clients

    @functools.cached_property
    def _aggregates(self) -> int:
        """Whole aggregates of targeted clients that a round has room for."""
        if self.participants > self._users:
            raise InputError(
                expected=f"at most {self._users} participants of {self.queries} queries each",
                found=str(self.participants),
                way_out="Give each client fewer queries, or aggregate fewer of them.",
            )
        return self._users // self.participants

    @property
    def rounds(self) -> int:
        """One for every time that the queries are dealt out."""
        victims = self._targets * self._aggregates if self._targets else self._users
        return math.ceil(self.table.users / victims)

    def build(self) -> tuple[FederatedModule, FederatedDataModule]:
        """See `RecordedCell.build`."""
        source = ranking_data(
            self.data,
            self.choice.root,
            queries_per_client=self.queries,
            shuffles=self.rounds,
            clients_per_round=self._aggregates * self.participants if self._targets else 1.0,
            seed=self.seed,
        )
        kind = MANIPULATIONS[self.manipulation]
        manipulation = None if kind is None else kind()
        module = FPDGD(
            num_features=source.num_features,
            num_grades=source.num_grades,
            num_clients=source.num_clients,
            grade_law=source.grade_law,
            hidden=RANKERS[self.ranker],
            click_model=self.click_model,  # type: ignore[arg-type]
            manipulation=AGGREGATES[self.aggregate].manipulation(manipulation, self.participants),
            # A fresh ranker for every user, says the paper; here for every time the queries are dealt out.
            new_model_every_round=True,
            defenses=self.defenses(),
            seed=self.seed,
        )
        return module, source

    def evaluate(self, directory: Path) -> tuple[Evaluation, dict[str, float]]:
        """With the bounds beside, where the table asks for them."""
        evaluation, seconds = super().evaluate(directory)
        if self.manipulation in self.table.bounds:
            recording = Recording(directory / "deltas")
            rows = list(bound_rows(recording, setting=self.setting, seed=self.seed))
            evaluation.rows += with_people(rows, recording)
        return evaluation, seconds

    def defenses(self) -> list[Defense]:
        """What the clients do to protect themselves."""
        private = LocalDP(clip=self.table.clip, epsilon=self.epsilon, delta=self.table.delta)
        noisy: list[Defense] = [] if math.isinf(self.epsilon) else [private]
        if self.participants == 1:
            return noisy
        noise = private.noise_scale if noisy else 0.0
        return [*noisy, AGGREGATES[self.aggregate].defense(self.participants, noise)]
