"""A recording, read lazily: server views for attacks, and apart from them the truth for an evaluation."""

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from datamodules.recordings.adversary_devices import POPULARITY_OF_OTHERS
from datamodules.recordings.format import (
    AUXILIARY,
    CLIENT,
    CLIENT_MODEL,
    ITEM_FEATURES,
    PRIOR,
    ROUND_SETTINGS,
    JournalLine,
    Manifest,
    journals_in,
    read_journal,
    read_manifest,
)
from datamodules.recordings.plain_files import regular_file
from datamodules.recordings.shard_check import (
    CLASS_COUNTS,
    MESSAGES,
    SHOWN,
    MisfitError,
    check_auxiliary,
    check_common,
    check_seen,
    check_truth,
    common_shapes,
)
from datamodules.recordings.shard_files import ShardFiles, damaged, model_of
from protocol.errors import InputError
from protocol.simulators import AnySimulator, ClassifierSimulator
from protocol.view import POPULARITY, Release, ServerView, features_of

_logger = logging.getLogger(__name__)
_NUMBERS_PER_VIEW = 2**25
"""Bound on the padded delta numbers of one view: 128 MiB of float32."""


class Recording:
    """What the server of a training saw.

    Args:
        directory: the folder the recorder wrote.
        verify: check each file's hash before it is used.

    Attributes:
        closed: whether its writer came to its end, so that no round is missing; a warning says so where it did not.

    Raises:
        InputError: the folder is no whole recording of this format.
    """

    def __init__(self, directory: str | Path, *, verify: bool = True) -> None:
        self.directory = Path(directory)
        self.verify = verify
        self.manifest: Manifest = read_manifest(self.directory)
        self._lines = self._journalled()
        self._seen = ShardFiles(self.directory, self._lines, "rounds", verify=verify)
        self._truth = ShardFiles(self.directory, self._lines, "truth", verify=verify)
        self._checked: set[str] = set()
        self._common: dict[str, tuple[int, ...]] = {}
        self._auxiliary = self._read_auxiliary()

    @property
    def rounds(self) -> list[int]:
        """Numbers of the recorded rounds, ascending."""
        return self._seen.rounds

    @property
    def round_settings(self) -> dict[int, dict[str, Any]]:
        """By round, the columns that scores of it get; empty for most recordings."""
        return {int(number): dict(own) for number, own in self.manifest.config.get(ROUND_SETTINGS, {}).items()}

    @property
    def models(self) -> Callable[[int], dict[str, Tensor]]:
        """What reads the global model before a round; it leads to no truth."""
        return self._seen.model_reader()

    def pseudonyms(self, round_number: int | None = None) -> list[int]:
        """Every client of a round, or of the recording, ascending.

        Raises:
            InputError: a client is twice in a round.
        """
        numbers = self.rounds if round_number is None else [round_number]
        return sorted({name for number in numbers for name in self._clients_of(number)})

    def _clients_of(self, round_number: int) -> set[int]:
        found: set[int] = set()
        for name in self._seen.names(round_number):
            with self._open(name) as shard:
                own = set(shard.get_tensor("clients").tolist())
            if found & own:
                raise damaged(name, f"client {min(found & own)}, which another rank of round {round_number} has too")
            found |= own
        return found

    def views(
        self,
        *,
        victims_per_view: int = 64,
        rounds: Sequence[int] | None = None,
        pseudonyms: set[int] | None = None,
        learner: AnySimulator | None = None,
        history: bool = False,
    ) -> Iterator[ServerView]:
        """Server views of a few victims each, of like size, so that little is padded; memory does not grow with rounds.

        Args:
            victims_per_view: most victims in a view.
            rounds: which rounds, None for all.
            pseudonyms: which victims, None for all.
            learner: the clients' algorithm, where it is known.
            history: fill ``earlier`` from the recorded rounds before, in which all the victims of a view took part;
                memory then grows with rounds.
        """
        wanted = self.rounds if rounds is None else sorted(set(rounds) & set(self.rounds))
        for number in wanted:
            for name in self._seen.names(number):
                for view in self._shard_views(name, victims_per_view, pseudonyms, learner):
                    yield dataclasses.replace(view, earlier=self._earlier(view)) if history else view

    def _earlier(self, view: ServerView) -> tuple[ServerView, ...]:
        """What the server saw of the same victims in the rounds before, in the view's order."""
        found = []
        wanted = view.pseudonyms.tolist()
        for name in (name for number in self.rounds if number < view.round for name in self._seen.names(number)):
            with self._open(name) as shard:
                place = {pseudonym: i for i, pseudonym in enumerate(shard.get_tensor("clients").tolist())}
                if all(pseudonym in place for pseudonym in wanted):
                    chunk = torch.tensor([place[pseudonym] for pseudonym in wanted])
                    found.append(self._view(name, shard, model_of(shard), chunk, _item_offsets(shard), view.learner))
        return tuple(found)

    def auxiliary(self) -> dict[str, Tensor]:
        """What the server holds beside the clients' updates, e.g. labelled images; empty where nothing is recorded."""
        return dict(self._auxiliary)

    def _read_auxiliary(self) -> dict[str, Tensor]:
        path = self.directory / AUXILIARY
        expected = self.manifest.auxiliary
        if expected is None:
            if path.exists():
                raise damaged(AUXILIARY, "a file of which the manifest has no hash")
            return {}
        regular_file(path, way_out="The recording is damaged: copy it again, whole.")
        content = path.read_bytes()
        if self.verify and hashlib.sha256(content).hexdigest() != expected:
            raise damaged(AUXILIARY, "other bytes (its checksum differs)")
        try:
            held: dict[str, Tensor] = load(content)
            check_auxiliary(held)
        except (SafetensorError, MisfitError) as error:
            raise damaged(AUXILIARY, str(error)) from None
        return held

    def model(self, round_number: int) -> dict[str, Tensor]:
        """The global model before a recorded round."""
        with self._open(self._seen.names(round_number)[0]) as shard:
            return model_of(shard)

    def truth(self, view: ServerView) -> dict[str, Tensor]:
        """Opens the truth of a view. Only a place that computes a score may call this.

        Returns:
            ``clients (V,)``; of the served items ``(V, R)`` such as ``labels``, padded with 0; of the clients
            themselves ``(V, ...)``.

        Raises:
            InputError: the recording has no truth of a victim, or one that does not fit what the server saw.
        """
        width = 0 if view.served is None else view.served.shape[1]
        names = [name for name in self._truth.names(view.round) if _seen_with(name) in self._seen]
        of_victim: dict[int, dict[str, Tensor]] = {}
        for name in names:
            of_victim |= self._truth_of(name, set(view.pseudonyms.tolist()), width)
        missing = [pseudonym for pseudonym in view.pseudonyms.tolist() if pseudonym not in of_victim]
        if missing:
            raise InputError(
                expected=f"the truth of round {view.round} in {self.directory / 'truth'}, to score attacks by",
                found=f"none of {len(missing)} of {view.victims} clients",
                way_out="The recording was passed on without it, so it cannot be scored: "
                "audit it where the truth is, or copy truth/ and the journal's lines of it.",
            )
        rows = [of_victim[pseudonym] for pseudonym in view.pseudonyms.tolist()]
        if any(row.keys() != rows[0].keys() for row in rows):
            raise damaged(names[0], "other kinds of truth than those of another rank")
        self._check_classes(rows[0], view, names[0])
        return {field: torch.stack([row[field] for row in rows]) for field in rows[0]}

    def _check_classes(self, truth: Mapping[str, Tensor], view: ServerView, name: str) -> None:
        """The classes that are counted are those that the learner tells apart."""
        counts = truth.get(CLASS_COUNTS.removeprefix(CLIENT))
        if counts is None or not isinstance(view.learner, ClassifierSimulator):
            return
        classes = len(view.model[f"{view.learner.output_layer}.weight"])
        if len(counts) != classes:
            raise damaged(name, f"counts of {len(counts)} classes, where the learner has {classes}")

    def _truth_of(self, name: str, wanted: set[int], width: int) -> dict[int, dict[str, Tensor]]:
        """By pseudonym; items' values are padded to `width`."""
        with self._open(_seen_with(name)) as shard:
            positions = {p: i for i, p in enumerate(shard.get_tensor("clients").tolist()) if p in wanted}
        with self._open_truth(name) as shard:
            of_clients = {key: shard.get_slice(key) for key in shard.keys() if _of_client(key)}  # noqa: SIM118
            of_items = {key: shard.get_slice(key) for key in shard.keys() if not _of_client(key)}  # noqa: SIM118
            offsets = of_items.pop("offsets")[:] if of_items else torch.zeros(0)
            found = {}
            for pseudonym, i in positions.items():
                values = {key.removeprefix(CLIENT): table[i : i + 1][0] for key, table in of_clients.items()}
                for key, table in of_items.items():
                    own = table[int(offsets[i]) : int(offsets[i + 1])]
                    values[key] = torch.nn.functional.pad(own.float(), (0, width - len(own)))
                found[pseudonym] = values
            return found

    def _journalled(self) -> dict[str, JournalLine]:
        journals = [read_journal(path) for path in journals_in(self.directory)]
        lines = {line.file: line for journal in journals for line in journal.lines}
        if not lines:
            raise InputError(
                expected="a journal of finished rounds",
                found=f"{'an empty one' if journals else 'none'} in {self.directory}",
                way_out="The training ended before its first round was over: run it again.",
            )
        self.closed = len(journals) >= self._ranks() and all(journal.closed for journal in journals)
        if not self.closed:
            _logger.warning(
                "%s is not closed: its training is still running, was interrupted, or its journal is cut short; "
                "%d rounds are read",
                self.directory,
                len({line.round for line in lines.values()}),
            )
        truth = {name.removeprefix("truth/") for name in lines if name.startswith("truth/")}
        untold = [n for n in lines if n.startswith("rounds/") and truth and n.removeprefix("rounds/") not in truth]
        if untold:
            raise InputError(
                expected="truth of every round, or of none",
                found=f"none of {untold[0]} in the journal of {self.directory}",
                way_out="Copy the recording again, whole; or, to pass it on without truth, leave out all of truth/.",
            )
        for name, line in lines.items():
            path = self.directory / name
            if not path.is_file() or path.stat().st_size != line.bytes:
                found = f"{path.stat().st_size} bytes" if path.is_file() else "nothing"
                raise InputError(
                    expected=f"{name} of {line.bytes} bytes",
                    found=f"{found} in {self.directory}",
                    way_out="A shard is missing or cut short: copy the recording again, whole.",
                )
        return lines

    def _ranks(self) -> int:
        """How many journals there must be."""
        ranks = self.manifest.config.get("ranks", 1)
        return ranks if type(ranks) is int else 1

    def common_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes that are the same in every round: of the global model, under ``model/``, and of ``features``."""
        with self._open(self._seen.names(self.rounds[0])[0]) as shard:
            return common_shapes(shard)

    def most_examples(self) -> int:
        """The largest number of examples that a client says that it has."""
        names = [name for number in self.rounds for name in self._seen.names(number)]
        most = 0
        for name in names:
            with self._open(name) as shard:
                most = max(most, int(shard.get_tensor("counts").max()))
        return most

    def _open(self, name: str) -> Any:
        """A shard of ``rounds/``, which fits the manifest."""
        shard = self._seen.open(name)
        if name not in self._checked:
            try:
                check_seen(shard, self.manifest)
                self._common = self._common or common_shapes(shard)
                check_common(shard, self._common)
            except MisfitError as error:
                raise damaged(name, str(error)) from None
            self._checked.add(name)
        return shard

    def _open_truth(self, name: str) -> Any:
        """A shard of ``truth/``, which fits its round."""
        shard = self._truth.open(name)
        if name not in self._checked:
            try:
                with self._open(_seen_with(name)) as seen:
                    check_truth(shard, seen)
            except MisfitError as error:
                raise damaged(name, str(error)) from None
            self._checked.add(name)
        return shard

    def _shard_views(
        self, name: str, victims_per_view: int, pseudonyms: set[int] | None, learner: AnySimulator | None
    ) -> Iterator[ServerView]:
        with self._open(name) as shard:
            clients = shard.get_tensor("clients")
            offsets, model = _item_offsets(shard), model_of(shard)
            order = torch.argsort(offsets.diff(), stable=True)
            if pseudonyms is not None:
                order = order[[int(clients[i]) in pseudonyms for i in order]]
            for chunk in self._chunks(order, offsets.diff(), victims_per_view, _own_features(shard, offsets)):
                yield self._view(name, shard, model, chunk, offsets, learner)

    def _chunks(self, order: Tensor, sizes: Tensor, victims_per_view: int, features: int) -> Iterator[Tensor]:
        """Victims in ascending size, as many as fit; `features` are those that a view holds of every served item."""
        dense = sum(
            torch.Size(value["shape"]).numel()
            for name, value in self.manifest.parameters.items()
            if name not in self.manifest.row_parameters
        )
        tables = self.manifest.row_parameters
        width = features + sum(torch.Size(self.manifest.parameters[name]["shape"][1:]).numel() for name in tables)
        chunk: list[int] = []
        for position in order.tolist():
            numbers = (len(chunk) + 1) * (dense + width * int(sizes[position]))
            if chunk and (len(chunk) == victims_per_view or numbers > _NUMBERS_PER_VIEW):
                yield torch.tensor(chunk)
                chunk = []
            chunk.append(position)
        if chunk:
            yield torch.tensor(chunk)

    def _view(
        self,
        name: str,
        shard: Any,
        model: dict[str, Tensor],
        chunk: Tensor,
        offsets: Tensor,
        learner: AnySimulator | None,
    ) -> ServerView:
        deltas = {}
        for parameter in self.manifest.parameters:
            if parameter in self.manifest.row_parameters:
                value = _ragged(shard.get_slice(f"rows/{parameter}"), chunk, offsets, 0)
            else:
                value = _of_clients(shard.get_slice(f"deltas/{parameter}"), chunk)
            deltas[parameter] = value.float()
            if not _finite(deltas[parameter]):
                raise damaged(name, f"NaN or infinity in the deltas of {parameter!r}")
        shown = {
            kind: _ragged(shard.get_slice(kind), chunk, offsets, padding)
            for kind, padding in SHOWN.items()
            if kind in set(shard.keys())
        }
        keys, served = set(shard.keys()), shown.get("served")
        if ITEM_FEATURES in keys and served is not None:
            shown["features"] = features_of(shard.get_tensor(ITEM_FEATURES).float(), served)
        own_models = {
            key.removeprefix(CLIENT_MODEL): _of_clients(shard.get_slice(key), chunk).float()
            for key in sorted(keys)
            if key.startswith(CLIENT_MODEL)
        }
        return ServerView(
            round=self._seen.round_of(name),
            pseudonyms=shard.get_tensor("clients")[chunk].long(),
            example_counts=shard.get_tensor("counts")[chunk].long(),
            deltas=deltas,
            model=model,
            row_parameters=frozenset(self.manifest.row_parameters),
            served=served,
            lists=shown.get("lists"),
            features=shown.get("features"),
            client_models=own_models or None,
            releases=tuple(
                Release(clip=r["clip"], noise_scale=r["noise_scale"], parameters=tuple(r["parameters"]))
                for r in self.manifest.releases
            ),
            learner=learner,
            updates=shown.get("updates"),
            messages=shard.get_tensor(MESSAGES)[chunk].long() if MESSAGES in set(shard.keys()) else None,
            auxiliary=self._auxiliary,
            priors={
                **self._priors(shard.get_tensor("clients")[chunk].long(), served),
                **_own_priors(shard, chunk),
            },
            manipulation=self._manipulation(),
        )

    def _priors(self, pseudonyms: Tensor, served: Tensor | None) -> dict[str, Tensor]:
        """How many users of the other folds interacted with each served item, where the server recorded that."""
        counts = self._auxiliary.get(POPULARITY_OF_OTHERS)
        if counts is None or served is None:
            return {}
        own = counts[pseudonyms % len(counts)]
        return {POPULARITY: own.gather(1, served.clamp(min=0, max=own.shape[1] - 1).long()) * (served >= 0)}

    def _manipulation(self) -> str | None:
        name = self.manifest.config.get("manipulation")
        return name if isinstance(name, str) else None


def _own_priors(shard: Any, chunk: Tensor) -> dict[str, Tensor]:
    """What the server is assumed to know of each client."""
    names = [key for key in shard.keys() if key.startswith(PRIOR)]  # noqa: SIM118 - no mapping
    return {name.removeprefix(PRIOR): shard.get_tensor(name)[chunk] for name in names}


def _seen_with(name: str) -> str:
    """The shard of ``rounds/`` that a shard of ``truth/`` belongs to."""
    return name.replace("truth/", "rounds/", 1)


def _item_offsets(shard: Any) -> Tensor:
    """Where each client's items begin; all zero where the server served nothing."""
    offsets: Tensor
    if "served" in set(shard.keys()):
        offsets = shard.get_tensor("offsets").long()
    else:
        offsets = torch.zeros(shard.get_slice("clients").get_shape()[0] + 1)
    return offsets


def _own_features(shard: Any, offsets: Tensor) -> int:
    """Features of an item in `ITEM_FEATURES`; 0 where there are none or all clients share one list of items."""
    if ITEM_FEATURES not in set(shard.keys()):
        return 0
    sizes, served = offsets.diff(), shard.get_tensor("served")
    even = bool((sizes == sizes[0]).all())
    alike = even and bool((served.reshape(len(sizes), -1) == served[: int(sizes[0])]).all())
    return 0 if alike else int(shard.get_slice(ITEM_FEATURES).get_shape()[1])


def _of_client(key: str) -> bool:
    return key == "clients" or key.startswith(CLIENT)


def _of_clients(table: Any, chunk: Tensor) -> Tensor:
    """The given rows; many are faster taken from the whole table, a few without reading the others."""
    if 2 * len(chunk) > table.get_shape()[0]:
        rows: Tensor = table[:][chunk]
        return rows
    return torch.cat([table[i : i + 1] for i in chunk.tolist()])


def _finite(value: Tensor) -> bool:
    """Whether every number is finite; a finite sum says so in one pass, an infinite one may have overflowed."""
    return bool(value.sum().isfinite()) or bool(torch.isfinite(value).all())


def _ragged(table: Any, chunk: Tensor, offsets: Tensor, padding: int) -> Tensor:
    """The rows of some clients, padded, as the types that attacks compute with, whatever a stranger stored them in."""
    parts = [table[int(offsets[i]) : int(offsets[i + 1])] for i in chunk.tolist()]
    parts = [part.float() if part.is_floating_point() else part.long() for part in parts]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding)
