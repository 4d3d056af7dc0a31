"""A recording, read lazily: server views for attacks, and separately the ground truth for evaluations."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.view import RoundView, View
from fedleak.recordings.auxiliary_file import read_auxiliary
from fedleak.recordings.journalled_files import journalled_files
from fedleak.recordings.recorded_truth import RecordedTruth
from fedleak.recordings.shard_view import ShardView
from fedleak.recordings.shards import ShardFiles, damaged, model_of, view_dtype
from fedleak_recorder.format import ROUND_SETTINGS, Manifest, read_manifest, whole_manifest
from fedleak_recorder.shard_check import PARTICIPANTS, check_common, check_seen, common_shapes
from fedleak_recorder.tensor_checks import MisfitError

ViewPlace = tuple[int, int]
"""Number of a round, and place of a view among those of the round."""


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
        self.verify = verify
        self.manifest: Manifest = read_manifest(self.directory)
        self._lines, self.closed = journalled_files(self.directory, self.manifest, running=running)
        self._rounds = ShardFiles(self.directory, self._lines, "rounds", verify=verify)
        self._truth = RecordedTruth(
            ShardFiles(self.directory, self._lines, "truth", verify=verify),
            self._rounds,
            self._open,
            self.directory,
        )
        self._checked: set[str] = set()
        self._common: dict[str, tuple[int, ...]] = {}
        self.base: Path | None = None
        self._auxiliary = read_auxiliary(self.directory, self.manifest, verify=verify)

    @property
    def rounds(self) -> list[int]:
        """Ascending numbers of the recorded rounds."""
        return self._rounds.rounds

    @property
    def has_truth(self) -> bool:
        """Whether the true answers are recorded, by which attacks are scored."""
        return bool(self._truth)

    @property
    def round_settings(self) -> dict[int, dict[str, Any]]:
        """Additional columns of scores by round; empty for most recordings."""
        settings_of_round = self.manifest.config.get(ROUND_SETTINGS, {})
        return {int(number): dict(settings) for number, settings in settings_of_round.items()}

    @property
    def models(self) -> Callable[[int], dict[str, Tensor]]:
        """Function that reads the global model before a round, and gives no access to the ground truth."""
        return self._rounds.model_reader(view_dtype(self.manifest))

    def pseudonyms(self, round_number: int | None = None) -> list[int]:
        """Ascending pseudonyms of all clients of a round, or of the recording."""
        numbers = self.rounds if round_number is None else [round_number]
        names: set[int] = set()
        for number in numbers:
            names |= self.example_counts(number).keys()
        return sorted(names)

    def example_counts(self, round_number: int) -> dict[int, int]:
        """Number of examples that each client of a round reports, by pseudonym."""
        counts: dict[int, int] = {}
        for name in self._rounds.names(round_number):
            with self._open(name) as shard:
                clients = shard.get_tensor("clients").tolist()
                counts_of_rank = dict(zip(clients, shard.get_tensor("counts").tolist(), strict=True))
            # A client sends one message in a round, to one of the ranks.
            twice = counts.keys() & counts_of_rank.keys()
            if twice:
                raise damaged(name, f"client {min(twice)}, which another rank of round {round_number} has too")
            counts |= counts_of_rank
        return counts

    def participants(self, round_number: int) -> dict[int, list[int]]:
        """Pseudonyms of the clients whose updates each message of a round sums up, by its client's; empty for none."""
        participants: dict[int, list[int]] = {}
        for name in self._rounds.names(round_number):
            with self._open(name) as shard:
                if PARTICIPANTS in shard.keys():  # noqa: SIM118 - no mapping
                    clients = shard.get_tensor("clients").tolist()
                    participants |= dict(zip(clients, shard.get_tensor(PARTICIPANTS).tolist(), strict=True))
        return participants

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
        numbers = self._numbers(rounds)
        if only is not None:
            rounds_of_only = {number for number, _ in only}
            numbers = [number for number in numbers if number in rounds_of_only]
        for view_place, source, chunk in self._chunks(numbers, victims_per_view, pseudonyms, by_size=by_size):
            if only is None or view_place in only:
                # No name holds a view while the next one is read.
                yield self._with_earlier(source.view(chunk, learner), learner, history)

    def victims_of_views(
        self, *, victims_per_view: int = 64, rounds: Sequence[int] | None = None, pseudonyms: set[int] | None = None
    ) -> Iterator[tuple[ViewPlace, list[int]]]:
        """Place and victims of each view that `views` makes with the same arguments, without reading any update."""
        for view_place, source, chunk in self._chunks(self._numbers(rounds), victims_per_view, pseudonyms):
            yield view_place, source.clients[chunk].tolist()

    def _numbers(self, rounds: Sequence[int] | None) -> list[int]:
        """Those of some rounds that are recorded, ascending; all for None."""
        if rounds is None:
            return self.rounds
        return sorted(set(rounds) & set(self.rounds))

    def _chunks(
        self, rounds: Sequence[int], victims_per_view: int, pseudonyms: set[int] | None, *, by_size: bool = True
    ) -> Iterator[tuple[ViewPlace, ShardView, Tensor]]:
        """Place of each view, the file that it is of, and the positions of its victims there."""
        for number in rounds:
            # Views are numbered within their round, over the files of all ranks.
            numbers_of_views = itertools.count()
            for name in self._rounds.names(number):
                with self._open(name) as shard:
                    source = self._source(name, shard)
                    for chunk in source.chunks(victims_per_view, pseudonyms, by_size=by_size):
                        yield (number, next(numbers_of_views)), source, chunk

    def _source(self, name: str, shard: Any) -> ShardView:
        return ShardView(
            shard,
            name,
            round_number=self._rounds.round_of(name),
            manifest=self.manifest,
            model=model_of(shard, view_dtype(self.manifest)),
            auxiliary=self._auxiliary,
        )

    def _with_earlier(self, view: RoundView, learner: ClientAlgorithm | None, history: bool) -> RoundView:
        """The view, with those of the same victims in earlier rounds, in its order, if there is a `history`."""
        if not history:
            return view
        earlier_views = []
        victims = view.pseudonyms.tolist()
        earlier_rounds = [number for number in self.rounds if number < view.round]
        for number in earlier_rounds:
            for name in self._rounds.names(number):
                with self._open(name) as shard:
                    clients = shard.get_tensor("clients").tolist()
                    position_of = {pseudonym: position for position, pseudonym in enumerate(clients)}
                    # A round in which one of the victims did not take part is no part of their history.
                    if all(pseudonym in position_of for pseudonym in victims):
                        chunk = torch.tensor([position_of[pseudonym] for pseudonym in victims])
                        earlier_views.append(self._source(name, shard).view(chunk, learner))
        return dataclasses.replace(view, earlier=tuple(earlier_views))

    def auxiliary(self) -> dict[str, Tensor]:
        """The server's auxiliary data, e.g. labelled images; empty if none are recorded."""
        return dict(self._auxiliary)

    def model(self, round_number: int) -> dict[str, Tensor]:
        """The global model before a recorded round."""
        with self._open(self._rounds.names(round_number)[0]) as shard:
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
        return self._truth.of_view(view)

    def sha256(self) -> str:
        """Hash of the whole recording: of its manifest and of the journalled hashes of its files, sorted by name."""
        digest = hashlib.sha256(whole_manifest(self.directory))
        for name, line in sorted(self._lines.items()):
            digest.update(f"{name} {line.sha256}\n".encode())
        return digest.hexdigest()

    def common_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes that all rounds share: of the global model, under ``model/``, and of ``features``."""
        with self._open(self._rounds.names(self.rounds[0])[0]) as shard:
            return common_shapes(shard)

    def most_examples(self) -> int:
        """The largest number of examples that a client reports."""
        most = 0
        for number in self.rounds:
            for name in self._rounds.names(number):
                with self._open(name) as shard:
                    most = max(most, int(shard.get_tensor("counts").max()))
        return most

    def _open(self, name: str) -> Any:
        """A shard of ``rounds/``, checked against the manifest."""
        shard = self._rounds.open(name)
        if name not in self._checked:
            try:
                check_seen(shard, self.manifest)
                # What all rounds share is compared with the first shard that is opened.
                self._common = self._common or common_shapes(shard)
                check_common(shard, self._common)
            except MisfitError as error:
                raise damaged(name, str(error)) from None
            self._checked.add(name)
        return shard
