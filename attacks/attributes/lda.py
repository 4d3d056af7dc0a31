"""Attributes of people by a linear discriminant of their updates, learned from people whose attributes are known."""

from dataclasses import dataclass

import torch

from attacks.attributes.classifier import Discriminant, stacked
from attacks.attributes.estimates import AttributeEstimate
from attacks.attributes.messages import AttributeAttack, People, cosines, layers_of, products
from protocol.history import History
from protocol.ranges import AtLeastTwo


@dataclass(frozen=True, kw_only=True)
class AttributeLDA(AttributeAttack):
    """Linear discriminant of the updates of each round and layer, learned from people whose attributes are known.

    The updates of a layer, without the round's mean and at unit length, enter a `Discriminant`, which gives each person
    the log-odds of every value. The log-odds of all rounds and layers are summed, each with the weight from 0 to 1 with
    which the sum is the most likely for the known people; for this, a known person gets them from classifiers that were
    trained without it. Only inner products of updates are used, so the cost hardly grows with the model.

    Threat model: passive server that sees each update, under a name that stays, and knows the attributes of some of the
    people; nobody is asked about whose attributes it knows.

    Args:
        folds: folds of the cross-validation among the known people, see `Discriminant`.
        fewest: rounds with fewer known people are not used.

    References:
        This project.
    """

    name = "attribute-lda"
    cost = "`folds` times 15 logistic regressions for each round, layer and attribute"

    folds: AtLeastTwo = 5
    fewest: AtLeastTwo = 10

    def run(self, view: History, *, generator: torch.Generator) -> AttributeEstimate:
        people, machine = People.of(view), Discriminant(folds=self.folds)
        seed = int(torch.randint(2**31 - 1, (), generator=generator))
        of_all: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        of_known: dict[str, list[torch.Tensor]] = {name: [] for name in people.values}
        for part in view.each_round():
            place = people.places(part.pseudonyms)
            usable = [name for name, values in people.values.items() if _enough(values[place], self.fewest)]
            for names in layers_of(part).values() if usable else ():
                inner = cosines(products(part, names))
                for name in usable:
                    held, classes = people.values[name][place], people.classes(name)
                    known = (held >= 0).nonzero().flatten()
                    found = machine.evidence(inner, known, held[known], classes, seed=seed)
                    whole, left_out = torch.zeros(2, len(people.names), classes, dtype=torch.float64)
                    whole[place], left_out[place[known]] = found
                    of_all[name].append(whole)
                    of_known[name].append(left_out)
        evidence = {}
        for name, values in people.values.items():
            evidence[name] = torch.zeros(len(people.names), people.classes(name), dtype=torch.float64)
            if of_all[name]:
                asked = values >= 0
                evidence[name] = stacked(of_all[name], [found[asked] for found in of_known[name]], values[asked])
        return people.estimate(evidence)


def _enough(values: torch.Tensor, fewest: int) -> bool:
    """Whether enough of the people in a round have known values ``(V,)``, and not all the same."""
    known = values[values >= 0]
    return len(known) >= fewest and len(torch.unique(known)) > 1
