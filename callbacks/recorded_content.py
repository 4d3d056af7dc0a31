"""Content of a recording: the shards of each round, and the auxiliary data of the server."""

import fnmatch
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.record_hash import LENGTH, RECORD_ORIGIN, RECORD_STEP, SALT_LENGTH, Grid, record_hashes
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS, CANARY_PSEUDONYMS, CANDIDATE_LABELS, CANDIDATES
from fedleak.defenses.base import shown_counts
from fedleak.defenses.canaries import Canaries
from fedleak.recordings.adversary_devices import popularity_of_others, prior_knowledge
from fedleak.training.candidates import CandidateOptions, CandidatePool
from fedleak.training.data import FederatedDataModule
from fedleak.training.federated import FederatedModule
from fedleak.training.round_record import RoundRecord, TrainingExamples
from fedleak_recorder.arrays import shard_bytes
from fedleak_recorder.format import CLIENT, ITEM_FEATURES, MODEL, POPULARITY_OF_OTHERS, shard_name

_AUXILIARY_NAMES = {"image": "images", "label": "labels"}


class RecordedContent:
    """Content of the files of a recording; the arguments are those of `fedleak.callbacks.DeltaRecorder`."""

    def __init__(
        self,
        parameters: Sequence[str] | None,
        dtype: str,
        *,
        keep_records: bool = False,
        candidates: CandidateOptions | None = None,
    ) -> None:
        self.parameters, self.dtype, self.keep_records = parameters, dtype, keep_records
        self.candidates = candidates
        self._pool: CandidatePool | None = None
        self._grid: Grid | None = None
        self._copies: Callable[[Tensor], Tensor | None] = lambda _: None
        self._pseudonyms: dict[int, int] = {}

    def wanted(self, name: str) -> bool:
        """Whether a parameter is recorded."""
        return self.parameters is None or any(fnmatch.fnmatch(name, pattern) for pattern in self.parameters)

    def shards(self, record: RoundRecord, rank: int, module: FederatedModule) -> dict[str, bytes]:
        """Content by name of the shards of a round: the server's view, and the ground truth."""
        # The cohort is ordered by client number, which would reveal the clients.
        generator = generator_for(module.secret, "order of messages", module.seed, record.round, rank)
        order = torch.randperm(len(record.cohort), generator=generator)
        clients = record.cohort.clients[order]
        served = {name: value[order] for name, value in record.served.items()}
        real = served["served"] >= 0 if served else None
        pseudonyms = torch.tensor([self._pseudonym(module, int(c)) for c in clients])
        counts = shown_counts(module.defenses, record.cohort.counts[order])
        seen: dict[str, Tensor] = {"clients": pseudonyms, "counts": counts}
        seen |= {name: value[order] for name, value in record.of_clients.items()}
        summed = record.contributors is not None and record.contributors.shape[1] > 1
        if record.contributors is not None and summed:
            names = [[self._pseudonym(module, c) for c in own] for own in record.contributors[order].tolist()]
            seen["participants"] = torch.tensor(names).sort(1).values  # the order of the cohort names clients
        truth: dict[str, Tensor] = {"clients": clients}
        truth |= {f"{CLIENT}{name}": value[order] for name, value in record.client_truth.items()}
        if self._pool is not None:
            of_each = record.cohort.clients[:, None] if record.contributors is None else record.contributors
            truth[f"{CLIENT}member"] = torch.stack([self._pool.member(own.cpu()).any(0) for own in of_each[order]])
            if summed:
                truth[f"{CLIENT}own_member"] = self._pool.member(clients.cpu())
        if record.examples is not None:
            truth |= self._example_truth(record.examples.select(order), clients, record.round, module)
        if real is not None:
            offsets = torch.nn.functional.pad(real.sum(1).cumsum(0), (1, 0))
            seen |= {"offsets": offsets, **{name: value[real] for name, value in served.items()}}
            truth |= {"offsets": offsets, **{name: value[order][real] for name, value in record.truth.items()}}
        for name, delta in record.update.deltas.items():
            if self.wanted(name):
                rows = record.update.rows.get(name)
                kept = delta[order] if rows is None else delta[order][rows[order] >= 0]
                kind = "deltas" if rows is None else "rows"
                seen[f"{kind}/{name}"] = self._stored(kept, name, record.round)
        seen |= {f"{MODEL}{name}": value for name, value in record.model.items()}
        seen |= {} if record.item_features is None else {ITEM_FEATURES: record.item_features}
        return {
            shard_name("truth", record.round, rank): shard_bytes(truth),
            shard_name("rounds", record.round, rank): shard_bytes(seen),
        }

    def auxiliary(self, data: FederatedDataModule | None, module: FederatedModule) -> bytes | None:
        """Auxiliary data of the server: images, known devices, item popularity, attributes of people, candidates."""
        if data is None:
            require(self.candidates is None, "a FederatedDataModule with candidates", "none", "Remove candidates.")
            return None
        self._grid, self._copies = data.record_grid, data.record_copies
        held = {name: value for name, value in data.auxiliary().items() if len(value)}
        if data.client_known is not None:
            held |= prior_knowledge(data, lambda client: self._pseudonym(module, client))
        if data.num_items is not None and (items := data.user_items()):
            pseudonyms = torch.tensor([self._pseudonym(module, client) for client in range(data.num_clients)])
            held[POPULARITY_OF_OTHERS] = popularity_of_others(items, pseudonyms, data.num_items)
        if data.people is not None:
            numbers = data.people.known.nonzero().flatten()
            names = torch.tensor([self._pseudonym(module, client) for client in numbers.tolist()], dtype=torch.int64)
            numbers, names = numbers[names.argsort()], names.sort().values
            held |= {ATTRIBUTE_PSEUDONYMS: names}
            held |= {f"{ATTRIBUTE}{name}": values[numbers] for name, values in data.people.values.items()}
        if self.candidates is not None:
            pool = data.candidates(self.candidates)
            # The candidates are shuffled with the training's secret key: their order must not reveal who is a member.
            generator = generator_for(module.secret, "order of candidates", module.seed, PERSISTENT)
            self._pool = pool.select(torch.randperm(len(pool.labels), generator=generator))
            held |= {CANDIDATES: self._pool.records, CANDIDATE_LABELS: self._pool.labels}
        canaries = [defense for defense in module.defenses if isinstance(defense, Canaries)]
        if canaries:
            everyone = torch.arange(data.num_clients)
            chosen = everyone[torch.stack([defense.chosen(everyone) for defense in canaries]).any(0)]
            canary_names = sorted(self._pseudonym(module, client) for client in chosen.tolist())
            held[CANARY_PSEUDONYMS] = torch.tensor(canary_names, dtype=torch.int64)
        return shard_bytes({_AUXILIARY_NAMES.get(name, name): value for name, value in held.items()}) if held else None

    def _example_truth(
        self, examples: TrainingExamples, clients: Tensor, round_number: int, module: FederatedModule
    ) -> dict[str, Tensor]:
        """Salted hashes and classes of each client's training examples, and on request the examples."""
        mask, values = examples.mask.cpu(), examples.values.cpu()
        salts = torch.zeros(len(mask), SALT_LENGTH, dtype=torch.uint8)
        hashes = torch.zeros(*mask.shape, LENGTH, dtype=torch.uint8)
        for place, client in enumerate(clients.tolist()):
            generator = generator_for(module.secret, "salt of records", module.seed, round_number, client)
            salts[place] = torch.randint(256, (SALT_LENGTH,), generator=generator, dtype=torch.uint8)
            hashes[place, mask[place]] = record_hashes(values[place, mask[place]], salts[place], self._grid)
        found = {"record_salt": salts, "record_hash": hashes}
        if self._grid is not None:
            for name, value in zip((RECORD_STEP, RECORD_ORIGIN), self._grid, strict=True):
                found[name] = value.expand(len(mask), *value.shape).contiguous()
        if (copies := self._copies(values[mask])) is not None:
            found["record_copies"] = torch.zeros(mask.shape, dtype=torch.int64).masked_scatter_(mask, copies)
        if examples.labels is not None:
            found["record_labels"] = examples.labels.cpu().masked_fill(~mask, -1)
        if self.keep_records:
            found["records"] = values * mask.reshape(*mask.shape, *[1] * (values.dim() - 2))
        return {f"{CLIENT}{name}": value for name, value in found.items()}

    def _stored(self, value: Tensor, name: str, round_number: int) -> Tensor:
        stored = value.to(getattr(torch, self.dtype))
        lossy = stored.dtype != value.dtype
        if lossy and bool(torch.isfinite(value).all()) and not bool(torch.isfinite(stored).all()):
            found, way_out = f"an overflow in {name!r}, round {round_number}", "Record with dtype: float32 or bfloat16."
            raise InputError(expected=f"deltas that fit into {self.dtype}", found=found, way_out=way_out)
        return stored

    def _pseudonym(self, module: FederatedModule, client: int) -> int:
        """Pseudonym of a client, the same in every round; it needs the training's secret key."""
        if client not in self._pseudonyms:
            generator = generator_for(module.secret, "pseudonym", module.seed, PERSISTENT, client)
            self._pseudonyms[client] = int(torch.randint(2**62, (), generator=generator))
        return self._pseudonyms[client]
