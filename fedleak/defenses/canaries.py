"""Canaries: clients whose update or data depends on a secret coin, to measure how well the noise hides it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedleak.core.errors import InputError, require
from fedleak.core.ranges import PositiveFloat
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import CANARY_MINUS, CANARY_PLUS
from fedleak.defenses.base import Defense, Examples, Train, Update, per_client

COIN = "coin"
"""Ground truth of a client: +1 or -1, the world in which a canary lives; 0 for other clients."""


class Canaries(Defense):
    """Canary clients, which live in one of two worlds by a secret fair coin that holds for all rounds.

    It protects nobody: it is for a training that is made to be audited, and stands before `LocalDP`. The recording
    holds the canaries' updates in both worlds before the clip, which are public, and the coins as ground truth.
    `fedleak.attacks.CanaryBounds` infers the coins, and from them a lower bound of epsilon. One canary is the whole
    data of one client, the unit of `LocalDP`; the two worlds differ in it alone.

    * ``update`` is the strongest canary: instead of its trained delta the client sends ``coin * norm * c`` with a
      random unit vector c. With a norm of at least the clip, the worlds are twice the clip apart, as far as the noise
      promises to hide.
    * ``data`` tests the whole client: in the world +1 a share of its examples is mislabelled (a rating or click y
      becomes 1 - y, class k the class K - 1 - k, every next word the first of the vocabulary), in the world -1 none is.
      The client trains in both worlds and sends the update of its own. The number of examples is the same.

    The global model learns from canaries too, so do not deploy it.

    Args:
        kind: the kind of canary.
        share: probability with which a client is a canary, in (0, 1]; the recording lists their pseudonyms.
        norm: L2 norm of an ``update`` canary before the clip; at least the clip.
        mislabelled: share of a ``data`` canary's examples that are mislabelled in the world +1.
        seed: another seed draws other canaries and directions with the same secret key. They are drawn from the key,
            because a direction, which the recording holds, would name the client to whoever can draw it too.

    References:
        [Andrew24], for random directions as canary clients.
    """

    def __init__(
        self,
        *,
        kind: Literal["update", "data"] = "update",
        share: float = 1.0,
        norm: PositiveFloat = 1e3,
        mislabelled: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.share = share
        self.norm = norm
        self.mislabelled = mislabelled
        self.seed = seed
        require(
            kind in ("update", "data") and norm > 0,
            "Canaries.kind update or data, and a norm above 0",
            f"{kind} and {norm:g}",
            "A norm of at least LocalDP.clip lets the clip bind.",
        )
        require(
            0 < share <= 1 and 0 < mislabelled <= 1,
            "Canaries.share and Canaries.mislabelled in (0, 1]",
            f"{share:g} and {mislabelled:g}",
            "1.0 is all clients, and all of a client's examples.",
        )
        self._key = b""
        self._clients = torch.zeros(0, dtype=torch.int64)
        self._worlds: dict[str, Tensor] = {}

    def check_order(self, earlier: Sequence[Defense]) -> None:
        noisy = []
        for defense in earlier:
            if any(release.noise_scale > 0 for release in defense.releases(())):
                noisy.append(type(defense).__name__)
        require(not noisy, "Canaries before the defence that adds noise", f"{noisy} before it", "Move Canaries up.")

    def set_key(self, key: bytes) -> None:
        self._key = key

    def chosen(self, clients: Tensor) -> Tensor:
        """``(C,)`` bool, which of ``clients (C,)`` are canaries."""
        draws = []
        for client in clients.tolist():
            generator = generator_for(self._key, "canary", self.seed, client)
            draws.append(float(torch.rand((), generator=generator)))
        return torch.tensor(draws, dtype=torch.float64).reshape(-1) < self.share

    def coins(self, clients: Tensor) -> Tensor:
        """``(C,)`` coin of each client, 0 for one that is no canary."""
        flips = []
        for client in clients.tolist():
            generator = generator_for(self._key, "coin", PERSISTENT, client)
            flips.append(2 * int(torch.randint(2, (), generator=generator)) - 1)
        return torch.tensor(flips, dtype=torch.int64) * self.chosen(clients)

    def train_locally(self, examples: Examples, mask: Tensor, clients: Tensor, train: Train) -> Update:
        """Has the clients train in both worlds of ``data`` canaries; each goes on with the update of its own world."""
        if self.kind == "update":
            return train(examples)
        plus = train({**examples, **self.mislabelled_examples(examples, mask, clients)})
        minus = train(examples)
        self._keep(clients, {CANARY_PLUS: plus.deltas, CANARY_MINUS: minus.deltas}, self.chosen(clients))
        is_in_plus = self.coins(clients) > 0
        return dataclasses.replace(
            minus,
            deltas=_of_clients(is_in_plus, plus.deltas, minus.deltas),
            private=_of_clients(is_in_plus, plus.private, minus.private),
        )

    def mislabelled_examples(self, examples: Examples, mask: Tensor, clients: Tensor) -> dict[str, Tensor]:
        """The fields that ``data`` canaries learn otherwise in the world +1; see `train_locally`.

        Raises:
            InputError: the examples have no label that could be wrong.
        """
        rules = {name: rule for name, rule in _MISLABELLED.items() if name in examples}
        if not rules:
            raise InputError(
                expected=f"examples with {' or '.join(_MISLABELLED)} for Canaries(kind=data)",
                found=", ".join(examples),
                way_out="Use Canaries(kind=update), which needs no labels.",
            )
        # The first examples of each canary, up to its share.
        count = torch.ceil(self.mislabelled * mask.sum(1)).long()[:, None]
        is_canary = self.chosen(clients).to(mask.device)[:, None]
        is_mislabelled = mask & is_canary & (mask.cumsum(1) <= count)
        fields = {}
        for name, rule in rules.items():
            fields[name] = _where(is_mislabelled, rule(examples[name]), examples[name])
        return fields

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        if self.kind == "data" or update.clients is None or not len(update.clients):
            return update
        coins = self.coins(update.clients).to(update.clients.device)
        # A random direction of each canary, over all its parameters together; zero for other clients.
        directions = {name: torch.zeros_like(delta) for name, delta in update.deltas.items()}
        for position in coins.nonzero().flatten().tolist():
            generator = generator_for(self._key, "canary direction", self.seed, int(update.clients[position]))
            for direction in directions.values():
                direction[position] = torch.randn(direction[position].shape, generator=generator).to(direction)
        for name in update.rows:
            directions[name] *= update.row_mask(name)
        # norm * c with a unit vector c: the update in the world +1.
        squares = [direction.flatten(1).double().square().sum(1) for direction in directions.values()]
        norms = torch.stack(squares).sum(0).sqrt()
        factors = self.norm / norms.clamp(min=1e-30)
        plus = {name: direction * per_client(factors, direction) for name, direction in directions.items()}
        self._keep(update.clients, {CANARY_PLUS: plus}, coins != 0)
        # Canaries send the coin times that, all others their own update.
        deltas = {}
        for name, delta in update.deltas.items():
            coin = per_client(coins, delta)
            deltas[name] = torch.where(coin != 0, coin * plus[name], delta)
        return dataclasses.replace(update, deltas=deltas)

    def recorded_facts(self, clients: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        cohort = self._clients.tolist()
        positions = [cohort.index(client) for client in clients.tolist()]
        public = {name: deltas[positions] for name, deltas in self._worlds.items()}
        return public, {COIN: self.coins(clients)}

    def _keep(self, clients: Tensor, worlds: dict[str, dict[str, Tensor]], canary: Tensor) -> None:
        """Keeps the canaries' updates in both worlds for the recording; zero for other clients."""
        self._clients = clients.cpu()
        self._worlds = {}
        for world, deltas in worlds.items():
            for name, delta in deltas.items():
                of_canaries = delta * per_client(canary.to(delta.device), delta)
                self._worlds[f"{world}{name}"] = of_canaries.float()


def _of_clients(is_in_plus: Tensor, plus: Mapping[str, Tensor], minus: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By parameter ``(C, ...)``, that of `plus` for clients in the world +1, and of `minus` for all others."""
    chosen = {}
    for name, parameter in minus.items():
        chosen[name] = torch.where(per_client(is_in_plus, parameter) > 0, plus[name], parameter)
    return chosen


def _opposite(labels: Tensor) -> Tensor:
    """1 - y of numbers in [0, 1]; K - 1 - k of classes, with K - 1 the largest of the cohort."""
    if labels.is_floating_point():
        return 1 - labels
    return labels.max() - labels


_MISLABELLED: dict[str, Callable[[Tensor], Tensor]] = {"label": _opposite, "tokens": lambda tokens: tokens.clamp(max=1)}
"""By field of the examples, what is learned instead; words are numbered from 1, and 0 is padding."""


def _where(is_changed: Tensor, changed: Tensor, unchanged: Tensor) -> Tensor:
    """``(C, N, ...)``: `changed` where ``is_changed (C, N)``, else `unchanged`."""
    mask = is_changed.reshape(*is_changed.shape, *[1] * (changed.dim() - is_changed.dim()))
    return torch.where(mask, changed, unchanged)
