"""The server's view of several rounds, for attacks on all messages of a recording together."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedleak.core.view import RoundView, View


@dataclass(frozen=True, kw_only=True)
class History(View):
    """What the server saw in several rounds: one victim per message, and the rounds, which are read on access.

    Attributes:
        sent_in: ``(V,)`` round of each message; pseudonyms may repeat.
        round_models: the global model before each of these rounds, by number.
        by_round: view of each round's messages, read on access, where the deltas are not in memory.
        read_parts: the same in parts of bounded size, of the clients in a set, by the number of the round.
        pairs: ``(M, 2)`` pairs of messages for matching attacks, which are numbered over this view and then `known`.
        known: what the server saw of its own devices, whose users are ``known.priors["users"]`` ``(P,)``; None without
            such devices.

    Example:
        >>> import torch
        >>> from fedleak import History
        >>> history = History(
        ...     round=1,
        ...     pseudonyms=torch.tensor([7, 8, 7]),
        ...     example_counts=torch.tensor([10, 30, 10]),
        ...     deltas={"bias": torch.tensor([[0.1], [0.2], [0.3]])},
        ...     model={"bias": torch.zeros(1)},
        ...     sent_in=torch.tensor([0, 0, 1]),
        ... )
        >>> [(view.round, view.pseudonyms.tolist()) for view in history.each_round()]
        [(0, [7, 8]), (1, [7])]
    """

    of_victims: ClassVar[tuple[str, ...]] = (*View.of_victims, "sent_in")

    sent_in: Tensor
    round_models: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    by_round: Mapping[int, RoundView] = field(default_factory=dict)
    read_parts: Callable[[int, set[int]], Iterator[RoundView]] | None = None
    pairs: Tensor | None = None
    known: "History | None" = None

    def select(self, positions: Tensor) -> Self:
        """Pairs are kept if both of their messages are."""
        chosen = super().select(positions)
        if chosen is self:
            return chosen
        return dataclasses.replace(chosen, pairs=self._pairs_among(positions))

    def _pairs_among(self, positions: Tensor) -> Tensor | None:
        if self.pairs is None:
            return None
        # Pairs number the victims' messages first, and those of the server's own devices after them.
        known_messages = 0
        if self.known is not None:
            known_messages = self.known.victims
        new_position = torch.full((self.victims + known_messages,), -1)
        new_position[positions] = torch.arange(len(positions))
        new_position[self.victims :] = len(positions) + torch.arange(known_messages)
        pairs = new_position[self.pairs]
        # -1 stands for a message that was not selected.
        return pairs[(pairs >= 0).all(1)]

    def each_round(self) -> Iterator[RoundView]:
        """Views of the messages of one round each, ascending, one in memory at a time where they are read lazily."""
        # Without rounds to read, all messages are in memory.
        if not self.by_round:
            for number in torch.unique(self.sent_in).tolist():
                yield self.in_round(number)
            return
        for number in sorted(self.by_round):
            senders = self.pseudonyms[self.sent_in == number]
            if len(senders):
                round_view = self.by_round[number]
                positions = torch.isin(round_view.pseudonyms, senders).nonzero().flatten()
                yield round_view.select(positions)

    def each_part(self, messages: Tensor | None = None) -> Iterator[RoundView]:
        """Messages of some numbers ``(M,)``, or all, in views of one round and of bounded size, rounds ascending."""
        chosen = self
        if messages is not None:
            chosen = self.select(messages.sort().values)
        if self.read_parts is None:
            yield from chosen.each_round()
            return
        for number in torch.unique(chosen.sent_in).tolist():
            senders = set(chosen.pseudonyms[chosen.sent_in == number].tolist())
            yield from self.read_parts(number, senders)

    def in_round(self, number: int) -> RoundView:
        """View of the messages of one round, of those whose deltas are in memory."""
        messages = self.select((self.sent_in == number).nonzero().flatten())
        fields = messages.common()
        fields["round"] = number
        fields["model"] = self.round_models.get(number, self.model)
        return RoundView(**fields)
