"""Step on what the raw data say about people's attributes, the upper end for attacks on the updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
        inner = [cosines(one @ one.T) for one in vectors]
        machine, seed = Discriminant(folds=self.folds), run.seed
        for name, values in people.values.items():
            known = (people.known & (values >= 0)).nonzero().flatten()
            asked = (~people.known & (values >= 0)).nonzero().flatten()
            classes = int(values[known].max()) + 1
            parts = [machine.evidence(one, known, values[known], classes, seed=seed) for one in inner]
            found = stacked([own for own, _ in parts], [left_out for _, left_out in parts], values[known])
            metrics, influences = scores_of_people(found[asked], values[asked])
            options: dict[str, Any] = {"items": classes, "positives": 1, "setting": {"attribute": name}}
            options |= {"influences": influences, "round": run.recording.rounds[0]}
            yield run.scores(CEILING, metrics, victims=asked, **options)
