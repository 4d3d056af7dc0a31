"""Matching attacks and their baselines: do two messages come from the same user?"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedleak.attacks.matching.estimates import MatchingEstimate, asked_pairs
from fedleak.attacks.re_identification.baselines import count_distances
from fedleak.attacks.re_identification.fingerprint import FingerprintAttack
from fedleak.attacks.re_identification.messages import known_view, read_messages, seen_only, unit
from fedleak.attacks.re_identification.reidentification import Reidentification, ReidMLP
from fedleak.core.attack import Attack, Variants
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate
from fedleak.core.history import History
from fedleak.core.ranges import PositiveInt
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import USERS

_NEEDS = (*Reidentification.threat_model.needs, "pairs")


class MatchingAttack(Attack):
    """Base class of attacks that infer which pairs of messages come from the same user."""

    family = "matching"
    estimates: ClassVar[type[Estimate]] = MatchingEstimate


class MatchingMLP(MatchingAttack, ReidMLP):
    """Probability that both messages are of the same user, ``max_u P[i = u] P[j = u]`` by `ReidMLP`.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data.

    Further arguments are those of `Reidentification`.

    Args:
        accelerator: Lightning accelerator.

    References:
        [Orekondy18], section 4.4 (ii).

    Example:
        >>> import torch
        >>> from fedleak.attacks.matching import MatchingMLP
        >>> from fedleak.attacks.matching.toy import toy
        >>> view, truth = toy()
        >>> estimate = MatchingMLP(epochs=40, accelerator="cpu")(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["ap"].mean()) > 0.9
        True
    """

    name = "matching-mlp"
    references = ("Orekondy18, section 4.4",)
    threat_model = dataclasses.replace(Reidentification.threat_model, needs=_NEEDS)

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        messages = read_messages(view, self.layers)
        # The classifier names the senders of the known messages too: pairs may have one of them.
        all_messages = torch.cat([messages.anonymous, messages.known])
        with_known = dataclasses.replace(seen_only(messages), anonymous=all_messages)
        learned = self.learned_from(view, with_known, generator)
        pseudonyms = torch.cat([view.pseudonyms, known_view(view).pseudonyms])
        scores = self.over_messages(self.scores(self.prepared(learned), generator=generator), pseudonyms)
        first, second = scores[asked_pairs(view).T]
        return MatchingEstimate(scores=(first * second).amax(1))


@dataclass(frozen=True, kw_only=True)
class MatchingSiamese(MatchingAttack):
    """Siamese network: a distance between messages, learned from known devices.

    Threat model: passive server, all rounds; it has data of users, and devices of its own that train on these data. The
    pairs may include users of whom it has no data.

    Args:
        steps: batches of 64 pairs; not given in the paper.
        accelerator: Lightning accelerator.

    References:
        [Orekondy18], section 4.4 (iii).

    Example:
        >>> import torch
        >>> from fedleak.attacks.matching import MatchingSiamese
        >>> from fedleak.attacks.matching.toy import toy
        >>> view, truth = toy()
        >>> attack = MatchingSiamese(steps=75, accelerator="cpu")
        >>> estimate = attack(view, generator=torch.Generator().manual_seed(0))
        >>> float(estimate.score(view, truth).metrics["ap"].mean()) > 0.9
        True
    """

    name = "matching-siamese"
    references = ("Orekondy18, section 4.4",)
    cost = "one training of the network for all messages"
    threat_model = dataclasses.replace(Reidentification.threat_model, needs=_NEEDS)

    layers: Sequence[str] | None = None
    steps: PositiveInt = 1000
    accelerator: str = "auto"
    devices: PositiveInt = 1

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        from fedleak.modules.attackers.identity_nets import SiameseNet
        from fedleak.modules.attackers.trainer import fit_quietly

        messages = read_messages(view, self.layers)
        labels = torch.unique(known_view(view).priors[USERS], return_inverse=True)[1]
        counts = labels.bincount()
        # The network learns from pairs of one user and pairs of two.
        if int((counts > 0).sum()) < 2 or int(counts.max()) < 2:
            raise ViewError("expected two known users, one of them with two messages, got fewer")
        known_messages = unit(messages.known)
        net = SiameseNet(known_messages, labels, steps=self.steps, generator=generator)
        fit_quietly(net, accelerator=self.accelerator, devices=self.devices, max_steps=self.steps)
        net.cpu().eval()
        with torch.no_grad():
            embedded = net.embed(torch.cat([unit(messages.anonymous), known_messages]))
            first, second = embedded[asked_pairs(view).T]
            return MatchingEstimate(scores=net(first, second))


class MatchingFingerprint(MatchingAttack, FingerprintAttack):
    """Probability that both messages are of the same known user, ``sum_u P[i = u] P[j = u]`` by `FingerprintAttack`.

    Threat model: passive server, all rounds; it has data of users and knows the devices' training algorithm. The
    arguments are those of `FingerprintAttack`.

    References:
        This project; see `FingerprintAttack`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.matching import MatchingFingerprint
        >>> from fedleak.attacks.matching.toy import toy
        >>> view, truth = toy()
        >>> estimate = MatchingFingerprint()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        1.0
    """

    name = "matching-fingerprint"
    with_prior = "rank"
    threat_model = dataclasses.replace(
        FingerprintAttack.threat_model, needs=(*FingerprintAttack.threat_model.needs, "pairs")
    )
    variants: ClassVar[Variants] = {
        "linked": {
            "linked": True,
            "threat_model": dataclasses.replace(threat_model, sees=f"{threat_model.sees}; their pseudonyms"),
        }
    }

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        messages = read_messages(view, self.layers)
        all_messages = torch.cat([messages.anonymous, messages.known])
        log_probabilities = self.log_probabilities(view, seen_only(messages), all_messages, generator)
        # Messages of one pseudonym share their answer; pseudonyms of anonymous and of known messages are apart.
        pseudonyms = (view.pseudonyms, known_view(view).pseudonyms)
        parts = torch.split(log_probabilities, [len(pseudonyms[0]), len(pseudonyms[1])])
        of_anonymous = self.probabilities(parts[0], pseudonyms[0])
        of_known = self.probabilities(parts[1], pseudonyms[1])
        p_user = torch.cat([of_anonymous, of_known])
        first, second = p_user[asked_pairs(view).T]
        return MatchingEstimate(scores=(first * second).sum(1))


class MatchingChance(MatchingAttack):
    """Random guess: a uniform number for every pair.

    Threat model: a server that does not use the messages.

    References:
        [Orekondy18], section 4.4 (i).

    Example:
        >>> import torch
        >>> from fedleak.attacks.matching import MatchingChance
        >>> from fedleak.attacks.matching.toy import toy
        >>> view, truth = toy()
        >>> estimate = MatchingChance()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.47
    """

    name = "matching-chance"
    baseline = True
    threat_model = ThreatModel(sees="no message", knows="nothing", needs=("pairs",))

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        return MatchingEstimate(scores=torch.rand(len(asked_pairs(view)), generator=generator))


class MatchingCounts(MatchingAttack):
    """Ratio of the numbers of examples, ``-|log n_i - log n_j|``, of both devices.

    Threat model: passive server that sees only how many examples each device reports.

    References:
        This project; see `CountsOnly`.

    Example:
        >>> import torch
        >>> from fedleak.attacks.matching import MatchingCounts
        >>> from fedleak.attacks.matching.toy import toy
        >>> view, truth = toy()
        >>> estimate = MatchingCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["ap"].mean()), 2)
        0.5
    """

    name = "matching-counts"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(sees="the number of examples of every device", knows="nothing", needs=("pairs",))

    def run(self, view: History, *, generator: torch.Generator) -> MatchingEstimate:
        counts = [view.example_counts]
        if view.known is not None:
            counts.append(view.known.example_counts)
        first, second = torch.cat(counts)[asked_pairs(view).T]
        return MatchingEstimate(scores=-count_distances(first, second))
