"""Baselines without the updates: the most frequent value, and the numbers of examples that people report."""

import torch

from fedleak.attacks.attributes.estimates import AttributeEstimate
from fedleak.attacks.attributes.messages import AttributeAttack, AttributePeople
from fedleak.core.history import History
from fedleak.core.threat_model import ThreatModel

_NEEDS = ("sent_in", "auxiliary:attribute_pseudonyms")


class MajorityValue(AttributeAttack):
    """Guess from the known people's values: the same for everyone, so its AUC is 0.5.

    Threat model: a server that knows the attributes of some people and does not use the updates.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.attributes import MajorityValue
        >>> from fedleak.attacks.attributes.toy import toy
        >>> view, truth = toy()
        >>> estimate = MajorityValue()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.5
    """

    name = "majority"
    baseline = True
    is_prior = True
    threat_model = ThreatModel(
        sees="no update", knows="the attributes of some of the people who take part", needs=_NEEDS
    )

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people = AttributePeople.of(view)
        evidence = {}
        for name, values in people.values.items():
            # Half a person more of each value (Jeffreys' prior), so that no value is impossible.
            counts = values[values >= 0].bincount() + 0.5
            log_shares = (counts / counts.sum()).double().log()
            evidence[name] = log_shares.expand(len(people.names), -1)
        return people.estimate(evidence)


class ExampleCounts(AttributeAttack):
    """Gaussian discriminant of the logarithm of the number of examples that a person reports, averaged over rounds.

    Devices report these numbers so that the server can weigh their updates, and a number may depend on the attribute.

    Threat model: passive server that sees only how many examples each person reports.

    References:
        This project.

    Example:
        >>> import torch
        >>> from fedleak.attacks.attributes import ExampleCounts
        >>> from fedleak.attacks.attributes.toy import toy
        >>> view, truth = toy()
        >>> estimate = ExampleCounts()(view, generator=torch.Generator().manual_seed(0))
        >>> round(float(estimate.score(view, truth).metrics["auc"].mean()), 2)
        0.5
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
        people = AttributePeople.of(view)
        senders = people.places(view.pseudonyms)
        log_counts = view.example_counts.double().clamp(min=1).log()
        # A person's mean of log n over its messages.
        size = torch.zeros(len(people.names), dtype=torch.float64).scatter_reduce(
            0, senders, log_counts, "mean", include_self=False
        )
        evidence = {}
        for name, values in people.values.items():
            known = (values >= 0).nonzero().flatten()
            variance_of_all = size[known].var(correction=0).clamp(min=1e-12)
            log_likelihoods = torch.zeros(len(size), people.classes(name), dtype=torch.float64)
            for value in range(people.classes(name)):
                sizes_of_value = size[known[values[known] == value]]
                if not len(sizes_of_value):
                    continue
                # A variance of few people is drawn to that of all, which counts as one more person.
                count = len(sizes_of_value)
                variance = (sizes_of_value.var(correction=0) * count + variance_of_all) / (count + 1)
                # log N(size; mean, variance), but for a constant.
                log_likelihoods[:, value] = -((size - sizes_of_value.mean()).square() / variance + variance.log()) / 2
            shares = values[known].bincount().double() / len(known)
            # Posterior over prior: log p(size | value) - log sum_v p(v) p(size | v).
            log_marginal = torch.logsumexp(log_likelihoods + shares.log(), dim=1, keepdim=True)
            evidence[name] = log_likelihoods - log_marginal
        return people.estimate(evidence)
