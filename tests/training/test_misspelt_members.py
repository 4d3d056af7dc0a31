import importlib
import pkgutil

import pytest

from fedleak import datamodules
from fedleak.core.errors import InputError
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.training.data import FederatedDataModule
from fedleak.training.misspelt_members import refuse_misspelt


@pytest.mark.inventory
def test_members_of_the_projects_data_sets_are_no_misspelt_ones() -> None:
    for found in pkgutil.walk_packages(datamodules.__path__, "fedleak.datamodules."):
        importlib.import_module(found.name)
    kinds = [FederatedDataModule]
    for kind in kinds:
        kinds += kind.__subclasses__()
        refuse_misspelt(kind, FederatedDataModule)
    assert len(kinds) > 20


@pytest.mark.parametrize(
    ("name", "meant"), [("auxilary", "auxiliary"), ("client_knwon", "client_known"), ("users_items", "user_items")]
)
def test_a_data_set_with_a_misspelt_member_is_refused(name: str, meant: str) -> None:
    kind = type("Visits", (SyntheticRecommender,), {name: property(len)})
    with pytest.raises(InputError, match=f"did you mean {meant}"):
        kind()
    type("Visits", (SyntheticRecommender,), {f"_{name}": None, "auxiliary_size": 3})()
