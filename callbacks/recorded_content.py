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
        self.parameters = parameters
        self.dtype = dtype
        self.keep_records = keep_records
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
        return {
            shard_name("truth", record.round, rank): shard_bytes(self._truth(record, order, module)),
            shard_name("rounds", record.round, rank): shard_bytes(self._server_view(record, order, module)),
        }

    def _server_view(self, record: RoundRecord, order: Tensor, module: FederatedModule) -> dict[str, Tensor]:
        """Tensors of a round that the server saw, with its messages in this order."""
        clients = record.cohort.clients[order]
        pseudonyms = torch.tensor([self._pseudonym(module, int(client)) for client in clients])
        counts = shown_counts(module.defenses, record.cohort.counts[order])
        content: dict[str, Tensor] = {"clients": pseudonyms, "counts": counts}
        content |= {name: value[order] for name, value in record.of_clients.items()}
        if record.contributors is not None and _sums_clients(record):
            participants = []
            for members in record.contributors[order].tolist():
                participants.append([self._pseudonym(module, client) for client in members])
            # Sorted, because the order of the cohort names clients.
            content["participants"] = torch.tensor(participants).sort(1).values
        # Lists of all clients one after another, without padding; client c has the rows offsets[c] to offsets[c + 1].
        if record.served:
            real, offsets = _real_rows(record, order)
            content["offsets"] = offsets
            content |= {name: value[order][real] for name, value in record.served.items()}
        for name, delta in record.update.deltas.items():
            if not self.wanted(name):
                continue
            rows = record.update.rows.get(name)
            if rows is None:
                content[f"deltas/{name}"] = self._stored(delta[order], name, record.round)
            else:
                sent_rows = delta[order][rows[order] >= 0]
                content[f"rows/{name}"] = self._stored(sent_rows, name, record.round)
        content |= {f"{MODEL}{name}": value for name, value in record.model.items()}
        if record.item_features is not None:
            content[ITEM_FEATURES] = record.item_features
        return content

    def _truth(self, record: RoundRecord, order: Tensor, module: FederatedModule) -> dict[str, Tensor]:
        """Ground truth of a round, with its messages in this order."""
        clients = record.cohort.clients[order]
        content: dict[str, Tensor] = {"clients": clients}
        content |= {f"{CLIENT}{name}": value[order] for name, value in record.client_truth.items()}
        if self._pool is not None:
            # Of a sum over clients, a candidate is a member if any of them holds it.
            contributors = record.contributors
            if contributors is None:
                contributors = record.cohort.clients[:, None]
            holds_any = [self._pool.member(members.cpu()).any(0) for members in contributors[order]]
            content[f"{CLIENT}member"] = torch.stack(holds_any)
            if _sums_clients(record):
                content[f"{CLIENT}own_member"] = self._pool.member(clients.cpu())
        if record.examples is not None:
            content |= self._example_truth(record.examples.select(order), clients, record.round, module)
        if record.served:
            real, offsets = _real_rows(record, order)
            content["offsets"] = offsets
            content |= {name: value[order][real] for name, value in record.truth.items()}
        return content

    def auxiliary(self, data: FederatedDataModule | None, module: FederatedModule) -> bytes | None:
        """Auxiliary data of the server: images, known devices, item popularity, attributes of people, candidates."""
        if data is None:
            require(self.candidates is None, "a FederatedDataModule with candidates", "none", "Remove candidates.")
            return None
        self._grid = data.record_grid
        self._copies = data.record_copies
        auxiliary = {name: value for name, value in data.auxiliary().items() if len(value)}
        if data.client_known is not None:
            auxiliary |= prior_knowledge(data, lambda client: self._pseudonym(module, client))
        items = data.user_items() if data.num_items is not None else []
        if data.num_items is not None and items:
            pseudonyms = torch.tensor([self._pseudonym(module, client) for client in range(data.num_clients)])
            auxiliary[POPULARITY_OF_OTHERS] = popularity_of_others(items, pseudonyms, data.num_items)
        if data.people is not None:
            numbers = data.people.known.nonzero().flatten()
            names = torch.tensor([self._pseudonym(module, client) for client in numbers.tolist()], dtype=torch.int64)
            # In the order of the pseudonyms, because that of the client numbers would tell clients apart.
            numbers = numbers[names.argsort()]
            names = names.sort().values
            auxiliary |= {ATTRIBUTE_PSEUDONYMS: names}
            auxiliary |= {f"{ATTRIBUTE}{name}": values[numbers] for name, values in data.people.values.items()}
        if self.candidates is not None:
            pool = data.candidates(self.candidates)
            # The candidates are shuffled with the training's secret key: their order must not reveal who is a member.
            generator = generator_for(module.secret, "order of candidates", module.seed, PERSISTENT)
            self._pool = pool.select(torch.randperm(len(pool.labels), generator=generator))
            auxiliary |= {CANDIDATES: self._pool.records, CANDIDATE_LABELS: self._pool.labels}
        canaries = [defense for defense in module.defenses if isinstance(defense, Canaries)]
        if canaries:
            everyone = torch.arange(data.num_clients)
            is_canary = torch.stack([defense.chosen(everyone) for defense in canaries]).any(0)
            chosen = everyone[is_canary]
            canary_names = sorted(self._pseudonym(module, client) for client in chosen.tolist())
            auxiliary[CANARY_PSEUDONYMS] = torch.tensor(canary_names, dtype=torch.int64)
        if not auxiliary:
            return None
        return shard_bytes({_AUXILIARY_NAMES.get(name, name): value for name, value in auxiliary.items()})

    def _example_truth(
        self, examples: TrainingExamples, clients: Tensor, round_number: int, module: FederatedModule
    ) -> dict[str, Tensor]:
        """Salted hashes and classes of each client's training examples, and on request the examples."""
        mask = examples.mask.cpu()
        values = examples.values.cpu()
        salts = torch.zeros(len(mask), SALT_LENGTH, dtype=torch.uint8)
        hashes = torch.zeros(*mask.shape, LENGTH, dtype=torch.uint8)
        for message, client in enumerate(clients.tolist()):
            # The salt is secret: without it, a hash confirms no guess.
            generator = generator_for(module.secret, "salt of records", module.seed, round_number, client)
            salts[message] = torch.randint(256, (SALT_LENGTH,), generator=generator, dtype=torch.uint8)
            records = values[message, mask[message]]
            hashes[message, mask[message]] = record_hashes(records, salts[message], self._grid)
        truth = {"record_salt": salts, "record_hash": hashes}
        if self._grid is not None:
            for name, value in zip((RECORD_STEP, RECORD_ORIGIN), self._grid, strict=True):
                truth[name] = value.expand(len(mask), *value.shape).contiguous()
        copies = self._copies(values[mask])
        if copies is not None:
            truth["record_copies"] = torch.zeros(mask.shape, dtype=torch.int64).masked_scatter_(mask, copies)
        if examples.labels is not None:
            truth["record_labels"] = examples.labels.cpu().masked_fill(~mask, -1)
        if self.keep_records:
            truth["records"] = values * mask.reshape(*mask.shape, *[1] * (values.dim() - 2))
        return {f"{CLIENT}{name}": value for name, value in truth.items()}

    def _stored(self, value: Tensor, name: str, round_number: int) -> Tensor:
        stored = value.to(getattr(torch, self.dtype))
        # A smaller type may turn large numbers into infinity, which no attack could tell from a client's own.
        lossy = stored.dtype != value.dtype
        if lossy and bool(torch.isfinite(value).all()) and not bool(torch.isfinite(stored).all()):
            overflow = f"an overflow in {name!r}, round {round_number}"
            way_out = "Record with dtype: float32 or bfloat16."
            raise InputError(expected=f"deltas that fit into {self.dtype}", found=overflow, way_out=way_out)
        return stored

    def _pseudonym(self, module: FederatedModule, client: int) -> int:
        """Pseudonym of a client, the same in every round; it needs the training's secret key."""
        if client not in self._pseudonyms:
            # A draw with the secret key and the client's number: without the key, a pseudonym leads to no client.
            generator = generator_for(module.secret, "pseudonym", module.seed, PERSISTENT, client)
            self._pseudonyms[client] = int(torch.randint(2**62, (), generator=generator))
        return self._pseudonyms[client]


def _sums_clients(record: RoundRecord) -> bool:
    """Whether messages are sums over several clients."""
    return record.contributors is not None and record.contributors.shape[1] > 1


def _real_rows(record: RoundRecord, order: Tensor) -> tuple[Tensor, Tensor]:
    """``(C, R)`` True for served items that are no padding, and ``(C + 1,)`` number of them before each client."""
    real = record.served["served"][order] >= 0
    return real, torch.nn.functional.pad(real.sum(1).cumsum(0), (1, 0))
