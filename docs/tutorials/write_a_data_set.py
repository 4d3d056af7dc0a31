"""
Write a data set
================

A data set gives each client's examples. For interactions of people with items, ten lines suffice: the base class makes
clients, negative examples and cohorts of them.
"""

# %%
# A file
# ------
# Visits of people to places, as ``person,place`` in a folder of the data set's name.

import csv
import functools
import hashlib
import tempfile
from pathlib import Path

import numpy as np
from lightning import Trainer

from fedleak import DeltaRecorder, InputError, audit, show
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.interactions import Interactions, unique_interactions
from fedleak.modules import FNCF
from fedleak.tables.quiet import quieten

quieten()
work = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
folder = work / "data" / "visits"
folder.mkdir(parents=True)
with (folder / "visits.csv").open("w", newline="") as file:
    for person in range(40):
        for place in random.choice(80, 12, replace=False):
            csv.writer(file).writerow([person, place])

# %%
# The data set
# ------------
# The constructor reads nothing; what it takes is the base class's. ``fingerprint`` distinguishes versions of the data.
# What is wrong with a file is said with its line, and with a way out.


class Visits(RecommenderDataModule):
    """Lines ``person,place`` of ``visits/visits.csv`` below the data folder."""

    folders = ("visits",)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Name and hash of the file."""
        return {"name": "visits", "sha256": hashlib.sha256(self._lines.encode()).hexdigest()}

    @functools.cached_property
    def _lines(self) -> str:
        return (self.data_root() / "visits" / "visits.csv").read_text()

    def read(self) -> Interactions:
        """Every visit, in the order of the file."""
        rows = list(csv.reader(self._lines.splitlines()))
        for number, row in enumerate(rows, 1):
            if len(row) != 2 or not all(cell.isdecimal() for cell in row):
                expected = f"person,place as whole numbers in line {number} of visits.csv"
                raise InputError(expected=expected, found=",".join(row), way_out="Correct the line.")
        people, places = np.array(rows, dtype=np.int64).T
        return unique_interactions(
            people, places, np.arange(len(people)), num_users=people.max() + 1, num_items=places.max() + 1
        )


# %%
# Train and audit
# ---------------
# On the command line: ``fedleak train fit --data my_package.Visits``, and ``--data`` of ``fedleak reproduce`` to run a
# paper's table on it.

options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
trainer = Trainer(max_steps=1, default_root_dir=work, callbacks=[DeltaRecorder()], **options)
trainer.fit(FNCF(), Visits(root=str(work / "data")))
show(audit(work / "deltas", ["direction", "row-norm", "popularity"], progress=False))

# %%
# A damaged file is refused in one line:

(folder / "visits.csv").write_text("0,1\n0,cafe\n")
try:
    Visits(root=str(work / "data")).setup("fit")
except InputError as error:
    print(error)
