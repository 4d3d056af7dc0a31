"""The guardrail, ours: a client attacks its own update, and keeps it when the attack succeeds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import InteractionEstimate
from attacks.registry import built
from defenses.base import Defense, OwnView, Update, hold_back
from evaluation.runner import infer
from protocol.errors import InputError
from protocol.view import ServerView, ViewError


class Guardrail(Defense):
    """Before it sends, each client attacks what it is about to send, and sends nothing where it is exposed too far.

    It knows all that the server will know (the global model, what it was served, the update after all other defences,
    their public parameters) and beside that its own interactions, so that it can score the attack. That makes it a
    check of the leak itself, whatever made the leak: honest features can leak as much as manipulated ones.

    What it does not promise:

    * It covers the attacks it is given, at their strength; the server may have a better one.
    * The decision depends on the interactions. That a client keeps silent tells the server something, and under local
      DP the silence is not part of what epsilon bounds.
    * A client has few items: where nothing leaks its AUC still varies about 0.5, so that some hold back for nothing.

    Clients are attacked together, to be fast; an attack's draws are then those of the cohort, not of one client.

    Args:
        limit: largest AUC of its own reconstruction at which a client still sends.
        attacks: the attacks, of which the most successful counts; one that does not fit the recording is left out.
            Names or class paths, or a mapping of these to arguments, such as ``{list-posterior: {prior: uniform}}``.

    Raises:
        InputError: the limit is no AUC, or there is no attack.
    """

    def __init__(self, *, limit: float = 0.6, attacks: dict[str, dict[str, Any]] | Sequence[Attack | str]) -> None:
        if not 0 <= limit <= 1 or not attacks:
            raise InputError(
                expected="Guardrail.limit in [0, 1] and at least one attack",
                found=f"{limit:g} and {len(attacks)} attacks",
                way_out="0.5 is guessing; a client of few items exceeds 0.6 now and then by chance.",
            )
        self.limit = limit
        named = attacks.items() if isinstance(attacks, dict) else ((attack, None) for attack in attacks)
        self.attacks = [built(attack, arguments) for attack, arguments in named]

    def review(self, update: Update, own_view: OwnView, generators: Callable[[int], torch.Generator]) -> Update:
        view, labels = own_view(update)
        if not view.victims:
            return update
        # A client whose interactions are all alike has no AUC: there is nothing to tell apart.
        return hold_back(update, ~(self.exposure(view, labels, generators(0)) > self.limit))

    def exposure(self, view: ServerView, labels: Tensor, generator: torch.Generator) -> Tensor:
        """The largest AUC that an attack has on each client.

        Args:
            view: what the server would see.
            labels: ``(V, R)`` the clients' own interactions.
            generator: source of the attacks' randomness.

        Returns:
            ``(V,)`` float64, NaN for a client with one class only.

        Raises:
            InputError: no attack fits what the clients send.
        """
        found, refused = [], []
        for attack in self.attacks:
            try:
                estimate = infer(attack, view, generator)
            except ViewError as error:
                refused.append(str(error))
                continue
            assert isinstance(estimate, InteractionEstimate)
            found.append(estimate.score(view, {"labels": labels}).metrics["auc"])
        if not found:
            raise InputError(
                expected="a Guardrail with an attack that fits what the clients send",
                found="; ".join(refused),
                way_out="Give it an attack of this learner's family, e.g. list-posterior for rankings.",
            )
        return torch.stack(found).amax(0)
