"""Baselines without the updates: the most frequent value, and the numbers of examples that people report."""

import torch

from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.attacks.attributes.messages import AttributeAttack, People
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel

_NEEDS = ("sent_in", "auxiliary:attribute_pseudonyms")


class MajorityValue(AttributeAttack):
    """Guess from the known people's values: the same for everyone, so its AUC is 0.5.

    Threat model: a server that knows the attributes of some people and does not use the updates.

    References:
        This project.
    """

    name = "majority"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="no update", knows="the attributes of some of the people who take part", needs=_NEEDS
    )

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people = People.of(view)
        evidence = {}
        for name, values in people.values.items():
            shares = values[values >= 0].bincount()
            evidence[name] = ((shares + 0.5) / (shares + 0.5).sum()).double().log().expand(len(people.names), -1)
        return people.estimate(evidence)


class ExampleCounts(AttributeAttack):
    """Gaussian discriminant of the logarithm of the number of examples that a person reports, averaged over rounds.

    Devices report these numbers so that the server can weigh their updates, and a number may depend on the attribute.

    Threat model: passive server that sees only how many examples each person reports.

    References:
        This project.
    """

    name = "example-counts"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="the number of examples of every person",
        knows="the attributes of some of the people who take part",
        needs=_NEEDS,
    )

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people = People.of(view)
        place, logs = people.places(view.pseudonyms), view.example_counts.double().clamp(min=1).log()
        size = torch.zeros(len(people.names), dtype=torch.float64).scatter_reduce(
            0, place, logs, "mean", include_self=False
        )
        evidence = {}
        for name, values in people.values.items():
            own = (values >= 0).nonzero().flatten()
            whole = size[own].var(correction=0).clamp(min=1e-12)
            found = torch.zeros(len(size), people.classes(name), dtype=torch.float64)
            for value in range(people.classes(name)):
                inside = size[own[values[own] == value]]
                if len(inside):  # a variance of few people is drawn to that of all
                    spread = (inside.var(correction=0) * len(inside) + whole) / (len(inside) + 1)
                    found[:, value] = -((size - inside.mean()).square() / spread + spread.log()) / 2
            shares = values[own].bincount().double() / len(own)
            evidence[name] = found - torch.logsumexp(found + shares.log(), dim=1, keepdim=True)
        return people.estimate(evidence)
