"""Steps of a table, found by name or by the path of a class from elsewhere."""

from collections.abc import Iterable

import pandas as pd
import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.runner import Evaluation
from fedleak.tables.after import STEPS, AfterStep, after_steps
from fedleak.tables.after.model_quality import Accuracy
from fedleak.tables.cell_cache import CellRun


class Mine(AfterStep):
    """A step that no folder of the project holds."""

    name = "mine"

    def __init__(self, *, share: float = 0.5) -> None:
        self.share = share

    def rows(self, run: CellRun, evaluation: Evaluation) -> Iterable[pd.DataFrame]:
        return []


def test_steps_of_the_folder_are_found_by_name() -> None:
    assert STEPS["accuracy"] is Accuracy
    assert all(kind.name == name for name, kind in STEPS.items())


def test_step_from_elsewhere_is_named_by_its_class_path() -> None:
    (step,) = after_steps([{f"{__name__}.Mine": {"share": 0.25}}])
    assert isinstance(step, Mine)
    assert step.share == 0.25


@pytest.mark.parametrize("entry", ["acuracy", f"{__name__}.Yours", "pandas.DataFrame", f"{__name__}.AfterStep"])
def test_wrong_step_is_refused(entry: str) -> None:
    with pytest.raises(InputError):
        after_steps([entry])
