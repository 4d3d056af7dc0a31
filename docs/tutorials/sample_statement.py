"""
A statement for a data-protection officer
=========================================

``attack.py audit --statement`` turns an audit into a page for those who answer for a system. This one is of generated
data: an invented shop whose app learns recommendations from what its users clicked. :doc:`/docs/data-protection` says
how to read it, and what it does not say.
"""

# %%
# The system
# ----------
# 120 users of 12,000 train in a round, as in the company's test system.

import html
import json
import tempfile
import textwrap
from pathlib import Path

import yaml
from lightning import Trainer

import attack
from callbacks import DeltaRecorder
from datamodules import SyntheticRecommender
from experiments.quiet import quieten
from modules import FNCF

quieten()
work = Path(tempfile.mkdtemp())
trainer = Trainer(
    max_steps=1,
    default_root_dir=work,
    callbacks=[DeltaRecorder()],
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
trainer.fit(FNCF(), SyntheticRecommender(users=120, items=200, mean_interactions=20, fewest_interactions=8))

# %%
# What the controller declares
# ----------------------------
# No measurement can know these. The statement repeats them verbatim.

declared = {
    "system": "Shop recommendations",
    "version": "4.2",
    "controller": "Example Ltd, privacy@shop.example",
    "purpose": "suggest products in the shop's app",
    "people": 12000,
    "prior": 0.02,
    "acceptable_fpr": 0.01,
    "sensitivity": "purchases, some of which reveal health or beliefs",
    "epsilon": None,
    "retention": "single updates are deleted after aggregation, within an hour",
    "readers": ["operators of the aggregation server", "the cloud provider"],
    "limits": {"auc": 0.6},
    "outside": ["the released model", "the app's own analytics"],
}
_ = (work / "system.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))

# %%
# The audit
# ---------
# Exit status 3: an attack is above the controller's limit of 0.6.

status = attack.main(["audit", "--deltas", str(work / "deltas"), "--statement", str(work / "system.yaml")])
print("exit status", status)

# %%
# In five sentences
# -----------------

statement = json.loads((work / "statement.json").read_text())
for sentence in statement["summary"]:
    print(textwrap.fill(sentence, 100, initial_indent="* ", subsequent_indent="  "))

# %%
# The page
# --------
# ``statement.html``, in a frame. It is one file, and a browser prints it as a PDF.


class Page:
    """A page of HTML in a frame of this page."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<iframe width="100%" height="900" srcdoc="{html.escape(self.text)}" title="statement"></iframe>'


Page(work / "statement.html")
