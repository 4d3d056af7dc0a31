"""Step on what the raw data say about people's attributes, the upper end for attacks on the updates."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from fedleak.attacks.attributes.estimates import BALANCED, scores_of_people
from fedleak.attacks.attributes.lda import Discriminant, stacked
from fedleak.attacks.attributes.messages import cosines
from fedleak.core.errors import require
from fedleak.core.ranges import AtLeastTwo
from fedleak.evaluation.derived import CEILING
from fedleak.evaluation.evaluation import Evaluation
from fedleak.tables.after.step import AfterStep
from fedleak.tables.cell_cache import CellRun


@dataclass(frozen=True, kw_only=True)
class AttributeCeiling(AfterStep):
    """The classifier of `AttributeLDA` on the clients' raw data instead of their updates, with the same known people.

    The raw data are the interactions of a recommender's clients, the words of texts, and the mean image, colours and
    classes of image clients; see `FederatedDataModule.raw_features`. It needs the ground truth, so it is no attack.

    Attributes:
        folds: see `AttributeLDA`.
    """

    name = "attribute-ceiling"
    metrics = ("auc", BALANCED)
    folds: AtLeastTwo = 5

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterator[pd.DataFrame]:
        _, data = run.build()
        people = data.people
        way_out = "Set data.attributes in the table, or leave the step out of `after`."
        require(people is not None, "data with attributes of people", "data.attributes of null", way_out)
        assert people is not None
        vectors = [features.double() for features in data.raw_features().values()]
        # Like the attack on updates, the classifier sees cosines between clients: a matrix for each kind of raw data.
        inner = [cosines(features @ features.T) for features in vectors]
        machine = Discriminant(folds=self.folds)
        seed = run.seed
        for name, values in people.values.items():
            train = (people.known & (values >= 0)).nonzero().flatten()
            tested = (~people.known & (values >= 0)).nonzero().flatten()
            classes = int(values[train].max()) + 1
            fitted = []
            left_out = []
            for products in inner:
                of_fit, of_left_out = machine.evidence(products, train, values[train], classes, seed=seed)
                fitted.append(of_fit)
                left_out.append(of_left_out)
            # The evidence of all kinds is weighted by how well it fits the known people, each left out in turn.
            evidence = stacked(fitted, left_out, values[train])
            metrics, influences = scores_of_people(evidence[tested], values[tested])
            yield run.scores(
                CEILING,
                metrics,
                victims=tested,
                items=classes,
                positives=1,
                setting={"attribute": name},
                influences=influences,
                round=run.recording.rounds[0],
            )
