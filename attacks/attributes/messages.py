"""Messages of one round as inner products, without the mean of the round and at unit length, by layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.attacks.attributes.estimates import AttributeEstimate, attribute_names, known_people
from fedleak.core.attack import Attack
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import ATTRIBUTE, RoundView, View

_NUMBERS = 2**23
"""Numbers of messages in memory at a time."""
_IN_MEMORY = 2**26
"""Numbers of messages in memory that all later ones of a large round are compared with."""
_ALIKE = 1e-12
"""Share of the largest squared length below which a message without the round's mean is considered rounding."""


class AttributeAttack(Attack):
    """Base class of attacks that infer attributes of people from the messages of people whose attributes are known."""

    family = "attributes"
    estimates: ClassVar[type[Estimate]] = AttributeEstimate
    threat_model = ThreatModel(
        sees="the update of each person in each round, under a name that stays",
        knows="the attributes of some of the people who take part",
        needs=("deltas", "sent_in", "auxiliary:attribute_pseudonyms"),
    )


@dataclass(frozen=True)
class AttributePeople:
    """The people behind the messages of a view.

    Attributes:
        names: ``(N,)`` pseudonyms of all senders, ascending.
        known: ``(N,)`` True for those whose attributes the server knows.
        values: by attribute, ``(N,)`` value of the known people, -1 where it is unknown and for all others.
        first: ``(N,)`` number of the first message of each.
    """

    names: Tensor
    known: Tensor
    values: dict[str, Tensor]
    first: Tensor

    @classmethod
    def of(cls, view: History) -> "AttributePeople":
        """The people of a view.

        Raises:
            ViewError: all or none of the senders are known, or two of them do not differ in any attribute.
        """
        names, senders = torch.unique(view.pseudonyms, return_inverse=True)
        first = torch.full_like(names, view.victims)
        first = first.scatter_reduce(0, senders, torch.arange(view.victims), "amin")
        known_pseudonyms = known_people(view)
        is_known = torch.isin(names, known_pseudonyms)
        if not bool(is_known.any()) or bool(is_known.all()):
            raise ViewError(
                "expected messages of people with known attributes and of others, got"
                f" {int(is_known.sum())} known of {len(names)}"
            )
        # Row of each known sender in the auxiliary data, whose pseudonyms come in any order.
        order = known_pseudonyms.argsort()
        row = order[torch.searchsorted(known_pseudonyms[order], names[is_known])]
        values = {}
        for name in attribute_names(view):
            values[name] = torch.full_like(names, -1)
            values[name][is_known] = view.auxiliary[f"{ATTRIBUTE}{name}"].long()[row]
            if len(torch.unique(values[name][values[name] >= 0])) < 2:
                raise ViewError(f"expected known people with different values of {name}, got one value or none")
        return cls(names, is_known, values, first)

    def places(self, pseudonyms: Tensor) -> Tensor:
        """``(V,)`` number here of each sender."""
        return torch.searchsorted(self.names, pseudonyms.contiguous())

    def classes(self, name: str) -> int:
        """Number K of values of an attribute among the known people: the largest and one."""
        return int(self.values[name].max()) + 1

    def estimate(self, evidence: dict[str, Tensor]) -> AttributeEstimate:
        """The estimate of evidence ``(N, K)`` by attribute, of the people who are not known."""
        unknown = ~self.known
        of_unknown = {name: of_everyone[unknown] for name, of_everyone in evidence.items()}
        return AttributeEstimate(messages=self.first[unknown], evidence=of_unknown)


def layers_of(view: View) -> dict[str, list[str]]:
    """Names of the recorded parameters by layer: the name without its last part."""
    layers: dict[str, list[str]] = {}
    for name in view.deltas:
        layers.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return layers


def blocks(view: View, name: str, among: int | None = None) -> Iterator[Tensor]:
    """The deltas of a parameter as vectors ``(V, d)``, a few columns at a time; rows that were not sent are zero.

    The number of columns is that for `among` messages in memory, by default those of the view.
    """
    delta = view.deltas[name]
    most = max(1, _NUMBERS // (among or view.victims))
    if name not in view.row_parameters:
        yield from torch.split(delta.flatten(1), most, dim=1)
        return
    # Of a table, a few rows at a time: those that a client sent go to their places, all others stay zero.
    table_rows = view.model[name].shape[0]
    width = delta[0, 0].numel()
    served = view.served_items
    rows_at_once = max(1, most // width)
    for start in range(0, table_rows, rows_at_once):
        in_block = (served >= start) & (served < start + rows_at_once)
        message, column = in_block.nonzero(as_tuple=True)
        block = delta.new_zeros(len(delta), min(rows_at_once, table_rows - start), width)
        block[message, served[message, column] - start] = delta[message, column].flatten(1)
        yield block.flatten(1)


def products(first: View, second: View, names: list[str]) -> Tensor:
    """``(V, W)`` float64 inner products of the deltas of some parameters in two views of a round."""
    total = torch.zeros(first.victims, second.victims, dtype=torch.float64)
    among = max(first.victims, second.victims)
    for name in names:
        for mine, theirs in zip(blocks(first, name, among), blocks(second, name, among), strict=True):
            total += (mine.float() @ theirs.float().T).double()
    return total


def products_of_rounds(view: History) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Senders ``(V,)`` of each round, ascending, and by layer the ``(V, V)`` inner products of their messages.

    Of a round that is large, some messages are in memory while all later ones are read for them.
    """
    for number in torch.unique(view.sent_in).tolist():
        remaining = (view.sent_in == number).nonzero().flatten()
        senders = view.pseudonyms[remaining].sort().values
        inner_of_layers: dict[str, Tensor] = {}
        # Each pass holds the first messages that remain, and compares them with themselves and all later ones.
        while len(remaining):
            in_memory: list[tuple[Tensor, RoundView]] = []
            size = 0
            is_full = False
            for part in view.each_part(remaining):
                ordered = part.select(part.pseudonyms.argsort())
                columns = torch.searchsorted(senders, ordered.pseudonyms)
                size += sum(delta.numel() for delta in ordered.deltas.values())
                # The first part is always held, so that every pass gets on.
                is_full = is_full or (bool(in_memory) and size > _IN_MEMORY)
                if not is_full:
                    in_memory.append((columns, ordered))
                for layer, names in layers_of(ordered).items():
                    if layer not in inner_of_layers:
                        inner_of_layers[layer] = torch.zeros(len(senders), len(senders), dtype=torch.float64)
                    total = inner_of_layers[layer]
                    for rows, earlier in in_memory:
                        inner = products(earlier, ordered, names)
                        total[columns[:, None], rows] = inner.T
                        total[rows[:, None], columns] = inner
                del part, ordered  # before the next part is read
            compared = senders[torch.cat([rows for rows, _ in in_memory])]
            remaining = remaining[~torch.isin(view.pseudonyms[remaining], compared)]
        yield senders, inner_of_layers


def cosines(inner: Tensor) -> Tensor:
    """``(V, V)`` cosines of vectors without their mean, from their inner products ``(V, V)``.

    A vector that is the mean has the cosine 0 with all others.

    >>> cosines(torch.tensor([[2.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    # <x - m, y - m> = <x, y> - <x, m> - <m, y> + <m, m>, where the products with m are means of products.
    means = inner.mean(0)
    centred = inner - means - means[:, None] + inner.mean()
    squares = centred.diagonal().clamp(min=0)
    is_message = squares > _ALIKE * squares.max().clamp(min=torch.finfo(torch.float64).tiny)
    lengths = torch.where(is_message, squares.sqrt(), torch.inf)
    cosine: Tensor = centred / lengths / lengths[:, None]
    return cosine
