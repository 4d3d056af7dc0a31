"""The ground truth of a recording, which only code that computes scores may read."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.network import ClassifierAlgorithm
from fedleak.core.errors import require
from fedleak.core.view import View
from fedleak.recordings.shard_view import truth_of
from fedleak.recordings.shards import ShardFiles, damaged
from fedleak_recorder.format import CLIENT
from fedleak_recorder.shard_check import CLASS_COUNTS, check_truth
from fedleak_recorder.tensor_checks import MisfitError


class _Senders(NamedTuple):
    """Where the truth of each client of a round lies.

    Attributes:
        names: files of the truth.
        clients: ``(C,)`` pseudonyms, ascending.
        files: ``(C,)`` number of each client's file.
        positions: ``(C,)`` place of the client in it.
    """

    names: list[str]
    clients: Tensor
    files: Tensor
    positions: Tensor


class RecordedTruth:
    """Shards of ``truth/``, each checked against its shard of ``rounds/``."""

    def __init__(
        self, truth: ShardFiles, rounds: ShardFiles, open_round: Callable[[str], Any], directory: Path
    ) -> None:
        self._truth = truth
        self._rounds = rounds
        self._open_round = open_round
        self._directory = directory
        self._checked: set[str] = set()
        self._last_senders: tuple[int, _Senders] | None = None

    def __bool__(self) -> bool:
        return bool(self._truth.rounds)

    def of_view(self, view: View) -> dict[str, Tensor]:
        """Ground truth of a view, see `fedleak.recordings.recording.Recording.truth`."""
        if not self:
            return {}
        senders = self._senders(view.round)
        # The sender with each victim's pseudonym, if there is one.
        sender = torch.searchsorted(senders.clients, view.pseudonyms.contiguous())
        sender = sender.clamp(max=max(len(senders.clients) - 1, 0))
        has_truth = torch.zeros(view.victims, dtype=torch.bool)
        if len(senders.clients):
            has_truth = senders.clients[sender] == view.pseudonyms
        # File by file, and then back in the order of the view.
        width = 0 if view.served is None else view.served.shape[1]
        victims_of_files: list[Tensor] = []
        parts: list[dict[str, Tensor]] = []
        for number in torch.unique(senders.files[sender[has_truth]]).tolist():
            victims = (has_truth & (senders.files[sender] == number)).nonzero().flatten()
            with self._open(senders.names[number]) as shard:
                parts.append(truth_of(shard, senders.positions[sender[victims]], width, CLIENT))
            victims_of_files.append(victims)
        missing = view.pseudonyms[~has_truth].tolist()
        require(
            not missing,
            f"the truth of round {view.round} in {self._directory / 'truth'}, to score attacks by",
            f"none of {len(missing)} of {view.victims} clients",
            "The recording was published without it, so it cannot be scored: audit it where the truth is, or copy "
            "truth/ and the journal's lines of it.",
        )
        if any(part.keys() != parts[0].keys() for part in parts):
            raise damaged(senders.names[0], "other kinds of truth than those of another rank")
        _check_classes(parts[0], view, senders.names[0])
        order = torch.cat(victims_of_files).argsort()
        truth = {}
        for field in parts[0]:
            truth[field] = _joined([part[field] for part in parts])[order]
        # Pseudonyms change between rounds; the recorded number of a client does not.
        if "client" in truth:
            truth["clients"] = truth["client"].long()
        return truth

    def _senders(self, number: int) -> _Senders:
        """Where the truth of a round's clients lies.

        That of the last round asked for is kept, because views of a round follow each other.
        """
        if self._last_senders is None or self._last_senders[0] != number:
            # Clients are listed in the shards of the round, and the truth has them in the same order.
            names = [name for name in self._truth.names(number) if _shard_of_round(name) in self._rounds]
            clients_of_files = []
            for name in names:
                with self._open_round(_shard_of_round(name)) as shard:
                    clients_of_files.append(shard.get_tensor("clients").long())
            sizes = torch.tensor([len(clients) for clients in clients_of_files], dtype=torch.int64)
            files = torch.repeat_interleave(torch.arange(len(names)), sizes)
            nobody = torch.zeros(0, dtype=torch.int64)
            positions = torch.cat([nobody, *(torch.arange(size) for size in sizes.tolist())])
            clients, order = torch.cat([nobody, *clients_of_files]).sort()
            self._last_senders = number, _Senders(names, clients, files[order], positions[order])
        return self._last_senders[1]

    def _open(self, name: str) -> Any:
        """A shard of ``truth/``, checked against its round."""
        shard = self._truth.open(name)
        if name not in self._checked:
            try:
                with self._open_round(_shard_of_round(name)) as round_shard:
                    check_truth(shard, round_shard)
            except MisfitError as error:
                raise damaged(name, str(error)) from None
            self._checked.add(name)
        return shard


def _check_classes(truth: Mapping[str, Tensor], view: View, name: str) -> None:
    counts = truth.get(CLASS_COUNTS.removeprefix(CLIENT))
    if counts is None or not isinstance(view.algorithm, ClassifierAlgorithm):
        return
    classes = len(view.model[f"{view.algorithm.output_layer}.weight"])
    if counts.shape[1] != classes:
        raise damaged(name, f"counts of {counts.shape[1]} classes, where the learner has {classes}")


def _shard_of_round(name: str) -> str:
    """The shard of ``rounds/`` to which a shard of ``truth/`` belongs."""
    return name.replace("truth/", "rounds/", 1)


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Values of clients in several files; those of clients with fewer training examples are padded with zeros."""
    if len({value.shape[1:] for value in values}) == 1:
        return torch.cat(list(values))
    rows: list[Tensor] = []
    for value in values:
        rows += value
    return pad_sequence(rows, batch_first=True)
