"""A recording, read lazily: server views for attacks, and separately the ground truth for evaluations."""

import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import InputError, require
from fedleak.core.io.files import regular_file
from fedleak.core.view import RoundView, View
from fedleak.recordings.adversary_devices import EXAMPLES
from fedleak.recordings.shards import ShardFiles, ShardView, damaged, model_of, truth_of, view_dtype
from fedleak_recorder.auxiliary_check import check_auxiliary
from fedleak_recorder.files import check_stays_inside
from fedleak_recorder.format import AUXILIARY, CLIENT, ROUND_SETTINGS, Manifest, read_manifest, whole_manifest
from fedleak_recorder.journal import JournalLine, journal_name, journals_in, read_journal
from fedleak_recorder.shard_check import (
    CLASS_COUNTS,
    PARTICIPANTS,
    check_common,
    check_seen,
    check_truth,
    common_shapes,
)
from fedleak_recorder.tensor_checks import MisfitError

ViewPlace = tuple[int, int]
"""Number of a round, and place of a view among those of the round."""
_logger = logging.getLogger(__name__)


class Recording:
    """What the server of a training saw.

    Args:
        directory: folder that the recorder wrote.
        verify: check each file's hash before its first use.
        running: whether its training is known to be running, so that a recording that is not closed needs no warning.

    Attributes:
        base: folder with the frozen network of clients that fine-tune one, which no recording holds; None for none.
        closed: whether its writer finished, so that no round is missing; otherwise a warning is logged.

    Raises:
        InputError: the folder is no complete recording of this format.

    Example:
        >>> from tempfile import mkdtemp
        >>> from fedleak import Recording
        >>> from fedleak_recorder import Recorder
        >>> folder = mkdtemp()
        >>> with Recorder(folder, holds="deltas") as recorder:
        ...     sent = {"a": ({"weight": [3.0, 4.0]}, 10), "b": ({"weight": [0.0, 1.0]}, 30)}
        ...     recorder.round(0, {"weight": [0.0, 0.0]}, sent)
        >>> recording = Recording(folder)
        >>> recording.rounds
        [0]
        >>> [view] = recording.views()
        >>> view.deltas["weight"].norm(dim=1).sort().values
        tensor([1., 5.])
    """

    def __init__(self, directory: str | Path, *, verify: bool = True, running: bool = False) -> None:
        self.directory = Path(directory)
        self._running = running
        self.verify = verify
        self.manifest: Manifest = read_manifest(self.directory)
        self._lines = self._journalled()
        self._seen = ShardFiles(self.directory, self._lines, "rounds", verify=verify)
        self._truth = ShardFiles(self.directory, self._lines, "truth", verify=verify)
        self._checked: set[str] = set()
        self._common: dict[str, tuple[int, ...]] = {}
        self._last_senders: tuple[int, tuple[list[str], Tensor, Tensor, Tensor]] | None = None
        self.base: Path | None = None
        self._auxiliary = self._read_auxiliary()

    @property
    def rounds(self) -> list[int]:
        """Ascending numbers of the recorded rounds."""
        return self._seen.rounds

    @property
    def has_truth(self) -> bool:
        """Whether the true answers are recorded, by which attacks are scored."""
        return bool(self._truth.rounds)

    @property
    def round_settings(self) -> dict[int, dict[str, Any]]:
        """Additional columns of scores by round; empty for most recordings."""
        return {int(number): dict(own) for number, own in self.manifest.config.get(ROUND_SETTINGS, {}).items()}

    @property
    def models(self) -> Callable[[int], dict[str, Tensor]]:
        """Function that reads the global model before a round, and gives no access to the ground truth."""
        return self._seen.model_reader(view_dtype(self.manifest))

    def pseudonyms(self, round_number: int | None = None) -> list[int]:
        """Ascending pseudonyms of all clients of a round, or of the recording."""
        numbers = self.rounds if round_number is None else [round_number]
        return sorted({name for number in numbers for name in self.example_counts(number)})

    def example_counts(self, round_number: int) -> dict[int, int]:
        """Number of examples that each client of a round reports, by pseudonym."""
        found: dict[int, int] = {}
        for name in self._seen.names(round_number):
            with self._open(name) as shard:
                own = dict(zip(shard.get_tensor("clients").tolist(), shard.get_tensor("counts").tolist(), strict=True))
            twice = found.keys() & own.keys()
            if twice:
                raise damaged(name, f"client {min(twice)}, which another rank of round {round_number} has too")
            found |= own
        return found

    def participants(self, round_number: int) -> dict[int, list[int]]:
        """Pseudonyms of the clients whose updates each message of a round sums up, by its client's; empty for none."""
        found: dict[int, list[int]] = {}
        for name in self._seen.names(round_number):
            with self._open(name) as shard:
                if PARTICIPANTS in shard.keys():  # noqa: SIM118 - no mapping
                    names = shard.get_tensor("clients").tolist(), shard.get_tensor(PARTICIPANTS).tolist()
                    found |= dict(zip(*names, strict=True))
        return found

    def views(
        self,
        *,
        victims_per_view: int = 64,
        rounds: Sequence[int] | None = None,
        pseudonyms: set[int] | None = None,
        learner: ClientAlgorithm | None = None,
        history: bool = False,
        only: Collection[ViewPlace] | None = None,
        by_size: bool = True,
    ) -> Iterator[RoundView]:
        """Server views of a few victims of similar size each; memory does not grow with the rounds.

        Args:
            victims_per_view: largest number of victims of a view.
            rounds: numbers of rounds; None for all.
            pseudonyms: the victims; None for all clients.
            learner: the clients' algorithm; None if it is unknown.
            history: fill ``earlier`` from the recorded rounds before, in which all the victims of a view took part;
                memory then grows with the rounds.
            only: places of the views to make; None for all.
            by_size: whether victims of similar size are together; else they are sorted by pseudonym in each file.
        """
        wanted = self.rounds if rounds is None else sorted(set(rounds) & set(self.rounds))
        if only is not None:
            asked = {number for number, _ in only}
            wanted = [number for number in wanted if number in asked]
        for place, source, chunk in self._chunks(wanted, victims_per_view, pseudonyms, by_size=by_size):
            if only is None or place in only:
                # No name holds a view while the next one is read.
                yield self._with_earlier(source.view(chunk, learner), learner, history)

    def victims_of_views(
        self, *, victims_per_view: int = 64, rounds: Sequence[int] | None = None, pseudonyms: set[int] | None = None
    ) -> Iterator[tuple[ViewPlace, list[int]]]:
        """Place and victims of each view that `views` makes with the same arguments, without reading any update."""
        wanted = self.rounds if rounds is None else sorted(set(rounds) & set(self.rounds))
        for place, source, chunk in self._chunks(wanted, victims_per_view, pseudonyms):
            yield place, source.clients[chunk].tolist()

    def _chunks(
        self, rounds: Sequence[int], victims_per_view: int, pseudonyms: set[int] | None, *, by_size: bool = True
    ) -> Iterator[tuple[ViewPlace, ShardView, Tensor]]:
        """Place of each view, the file that it is of, and the positions of its victims there."""
        for number in rounds:
            places = itertools.count()
            for name in self._seen.names(number):
                with self._open(name) as shard:
                    source = self._source(name, shard)
                    for chunk in source.chunks(victims_per_view, pseudonyms, by_size=by_size):
                        yield (number, next(places)), source, chunk

    def _source(self, name: str, shard: Any) -> ShardView:
        return ShardView(
            shard,
            name,
            round_number=self._seen.round_of(name),
            manifest=self.manifest,
            model=model_of(shard, view_dtype(self.manifest)),
            auxiliary=self._auxiliary,
        )

    def _with_earlier(self, view: RoundView, learner: ClientAlgorithm | None, history: bool) -> RoundView:
        """The view, with those of the same victims in earlier rounds, in its order, if there is a `history`."""
        if not history:
            return view
        found = []
        wanted = view.pseudonyms.tolist()
        for name in (name for number in self.rounds if number < view.round for name in self._seen.names(number)):
            with self._open(name) as shard:
                place = {pseudonym: i for i, pseudonym in enumerate(shard.get_tensor("clients").tolist())}
                if all(pseudonym in place for pseudonym in wanted):
                    chunk = torch.tensor([place[pseudonym] for pseudonym in wanted])
                    found.append(self._source(name, shard).view(chunk, learner))
        return dataclasses.replace(view, earlier=tuple(found))

    def auxiliary(self) -> dict[str, Tensor]:
        """The server's auxiliary data, e.g. labelled images; empty if none are recorded."""
        return dict(self._auxiliary)

    def _read_auxiliary(self) -> dict[str, Tensor]:
        path = self.directory / AUXILIARY
        expected = self.manifest.auxiliary
        if expected is None:
            if path.exists():
                raise damaged(AUXILIARY, "a file of which the manifest has no hash")
            return {}
        check_stays_inside(self.directory, AUXILIARY)
        regular_file(path, way_out="The recording is damaged: copy it again, whole.")
        content = path.read_bytes()
        if self.verify and hashlib.sha256(content).hexdigest() != expected:
            raise damaged(AUXILIARY, "other bytes (its checksum differs)")
        try:
            held: dict[str, Tensor] = load(content)
            check_auxiliary(held)
        except (SafetensorError, MisfitError) as error:
            raise damaged(AUXILIARY, str(error)) from None
        # Examples of which there are none are absent, as those of known devices where the adversary has no device.
        held = {name: value for name, value in held.items() if name not in EXAMPLES or len(value)}
        double = view_dtype(self.manifest) == torch.float64  # the model that reads the data has this type
        return {name: value.double() if double and value.is_floating_point() else value for name, value in held.items()}

    def model(self, round_number: int) -> dict[str, Tensor]:
        """The global model before a recorded round."""
        with self._open(self._seen.names(round_number)[0]) as shard:
            return model_of(shard, view_dtype(self.manifest))

    def truth(self, view: View) -> dict[str, Tensor]:
        """Ground truth of a view. Only code that computes scores may call this.

        Returns:
            ``clients (V,)``; values of the served items ``(V, R)`` such as ``labels``, padded with 0; values of the
            clients themselves ``(V, ...)``. ``clients`` is ``client/client`` where the recording has it, because
            pseudonyms change between rounds. Empty if the recording was published without any ground truth.

        Raises:
            InputError: the recording has no ground truth of a victim, or one that does not fit what the server saw.
        """
        if not self._truth.rounds:
            return {}
        width = 0 if view.served is None else view.served.shape[1]
        names, clients, files, positions = self._senders(view.round)
        place = torch.searchsorted(clients, view.pseudonyms.contiguous()).clamp(max=max(len(clients) - 1, 0))
        known = clients[place] == view.pseudonyms if len(clients) else torch.zeros(view.victims, dtype=torch.bool)
        places, parts = list[Tensor](), list[dict[str, Tensor]]()
        for number in torch.unique(files[place[known]]).tolist():
            inside = (known & (files[place] == number)).nonzero().flatten()
            with self._open_truth(names[number]) as shard:
                parts.append(truth_of(shard, positions[place[inside]], width, CLIENT))
            places.append(inside)
        missing = view.pseudonyms[~known].tolist()
        require(
            not missing,
            f"the truth of round {view.round} in {self.directory / 'truth'}, to score attacks by",
            f"none of {len(missing)} of {view.victims} clients",
            "The recording was published without it, so it cannot be scored: audit it where the truth is, or copy "
            "truth/ and the journal's lines of it.",
        )
        if any(part.keys() != parts[0].keys() for part in parts):
            raise damaged(names[0], "other kinds of truth than those of another rank")
        self._check_classes(parts[0], view, names[0])
        order = torch.cat(places).argsort()
        truth = {field: _joined([part[field] for part in parts])[order] for field in parts[0]}
        return truth | ({"clients": truth["client"].long()} if "client" in truth else {})

    def _senders(self, number: int) -> tuple[list[str], Tensor, Tensor, Tensor]:
        """Files of the truth of a round; its clients ``(C,)`` ascending, with the number of their file and place there.

        That of the last round asked for is kept, because views of a round follow each other.
        """
        if self._last_senders is None or self._last_senders[0] != number:
            names = [name for name in self._truth.names(number) if _seen_with(name) in self._seen]
            own = [torch.zeros(0, dtype=torch.int64)]
            for name in names:
                with self._open(_seen_with(name)) as shard:
                    own.append(shard.get_tensor("clients").long())
            files = torch.repeat_interleave(torch.arange(len(own)) - 1, torch.tensor([len(part) for part in own]))
            clients, order = torch.cat(own).sort()
            positions = torch.cat([torch.arange(len(part)) for part in own])
            self._last_senders = number, (names, clients, files[order], positions[order])
        return self._last_senders[1]

    def _check_classes(self, truth: Mapping[str, Tensor], view: View, name: str) -> None:
        counts = truth.get(CLASS_COUNTS.removeprefix(CLIENT))
        if counts is None or not isinstance(view.algorithm, ClassifierAlgorithm):
            return
        classes = len(view.model[f"{view.algorithm.output_layer}.weight"])
        if counts.shape[1] != classes:
            raise damaged(name, f"counts of {counts.shape[1]} classes, where the learner has {classes}")

    def _journalled(self) -> dict[str, JournalLine]:
        journals = [read_journal(path) for path in journals_in(self.directory)]
        lines = {line.file: line for journal in journals for line in journal.lines}
        if not lines:
            raise self._without_journal(any_journal=bool(journals))
        ranks = self.manifest.config.get("ranks", 1)
        self.closed = len(journals) >= (ranks if type(ranks) is int else 1) and all(one.closed for one in journals)
        if not self.closed and not self._running:
            _logger.warning(
                "%s is not closed: its training is still running, was interrupted or never closed its recorder, or its "
                "journal is cut short; %d rounds are read",
                self.directory,
                len({line.round for line in lines.values()}),
            )
        rounds, truth = ({n.split("/")[1] for n in lines if n.startswith(kind)} for kind in ("rounds/", "truth/"))
        require(
            not truth or rounds <= truth,
            "truth of every round, or of none",
            f"none of {min(rounds - truth, default='')} in the journal of {self.directory}",
            "Copy the recording again, whole; or, to publish it without truth, leave out all of truth/.",
        )
        if truth and not (self.directory / "truth").exists():
            _logger.info("%s has no folder truth/: it was passed on without ground truth", self.directory)
            lines = {name: line for name, line in lines.items() if not name.startswith("truth/")}
        for name, line in lines.items():
            check_stays_inside(self.directory, name)
            path = self.directory / name
            size = path.stat().st_size if path.is_file() else None
            found = f"{'nothing' if size is None else f'{size} bytes'} in {self.directory}"
            way_out = "A shard is missing or cut short: copy the recording again, whole."
            if name.startswith("truth/"):
                way_out += " Without the whole folder truth/, an audit describes the updates, and scores nothing."
            require(size == line.bytes, f"{name} of {line.bytes} bytes", found, way_out)
        return lines

    def _without_journal(self, *, any_journal: bool) -> InputError:
        """The error for a recording of which no round is journalled."""
        rounds = {path.name.partition("-")[0] for path in (self.directory / "rounds").glob("*.safetensors")}
        way_out = "The training ended before its first round was over: run it again."
        if len(rounds) > 1:
            # A round begins after the one before is journalled.
            files = f"rounds/ holds files of {len(rounds)} rounds"
            way_out = f"The journal is missing, as {files}: copy {journal_name(0)} from where it was recorded."
        elif rounds:
            way_out = f"Copy {journal_name(0)} from where it was recorded. If there is none: {way_out}"
        return InputError(
            expected="a journal of finished rounds",
            found=f"{'an empty one' if any_journal else 'none'} in {self.directory}",
            way_out=way_out,
        )

    def sha256(self) -> str:
        """Hash of the whole recording: of its manifest and of the journalled hashes of its files, sorted by name."""
        whole = hashlib.sha256(whole_manifest(self.directory))
        for name, line in sorted(self._lines.items()):
            whole.update(f"{name} {line.sha256}\n".encode())
        return whole.hexdigest()

    def common_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes that all rounds share: of the global model, under ``model/``, and of ``features``."""
        with self._open(self._seen.names(self.rounds[0])[0]) as shard:
            return common_shapes(shard)

    def most_examples(self) -> int:
        """The largest number of examples that a client reports."""
        most = 0
        for name in (name for number in self.rounds for name in self._seen.names(number)):
            with self._open(name) as shard:
                most = max(most, int(shard.get_tensor("counts").max()))
        return most

    def _open(self, name: str) -> Any:
        """A shard of ``rounds/``, checked against the manifest."""
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
        """A shard of ``truth/``, checked against its round."""
        shard = self._truth.open(name)
        if name not in self._checked:
            try:
                with self._open(_seen_with(name)) as seen:
                    check_truth(shard, seen)
            except MisfitError as error:
                raise damaged(name, str(error)) from None
            self._checked.add(name)
        return shard


def _seen_with(name: str) -> str:
    """The shard of ``rounds/`` to which a shard of ``truth/`` belongs."""
    return name.replace("truth/", "rounds/", 1)


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Values of clients in several files; those of clients with fewer training examples are padded with zeros."""
    if len({value.shape[1:] for value in values}) == 1:
        return torch.cat(list(values))
    return pad_sequence([own for value in values for own in value], batch_first=True)
