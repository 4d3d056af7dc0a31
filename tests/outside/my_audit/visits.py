"""A data set of visits to places, in a CSV file."""

import csv
import functools
import hashlib

import numpy as np

from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.interactions import Interactions, unique_interactions


class Visits(RecommenderDataModule):
    """Lines ``person,place`` of ``visits/visits.csv`` below the data folder; the arguments are the base class's."""

    folders = ("visits",)

    @functools.cached_property
    def _content(self) -> bytes:
        return (self.data_root() / "visits" / "visits.csv").read_bytes()

    @property
    def fingerprint(self) -> dict[str, str]:
        """Name and hash of the file."""
        return {"name": "visits", "sha256": hashlib.sha256(self._content).hexdigest()}

    def read(self) -> Interactions:
        """Every visit, in the order of the file."""
        people, places = np.array(list(csv.reader(self._content.decode().splitlines())), dtype=np.int64).T
        return unique_interactions(
            people, places, np.arange(len(people)), num_users=people.max() + 1, num_items=places.max() + 1
        )
