"""
Read a report
=============

A training on digits, its audit, and what each number of the audit says. A report shows the same, see
:doc:`/docs/audit/reports`.
"""

# %%
# Train and record
# ----------------
# One step of the trainer is one round. The recorder writes what the server sees.

import tempfile
from pathlib import Path

from lightning import Trainer

from fedleak import DeltaRecorder, LocalTraining, audit, show
from fedleak.commands import program
from fedleak.datamodules import ClientSplit, Digits
from fedleak.modules import FederatedClassifier
from fedleak.tables.quiet import quieten

quieten()
work = Path(tempfile.mkdtemp())
options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
trainer = Trainer(max_steps=2, default_root_dir=work, callbacks=[DeltaRecorder()], **options)
data = Digits(split=ClientSplit(scheme="dirichlet", clients=10, examples_per_client=72))
model = FederatedClassifier(local=LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=12))
trainer.fit(model, data)

# %%
# The numbers
# -----------
# ``results`` has a row per attack and metric.

attacks = ["exact-counts", "last-layer-counts", "linkability", "link-counts", "equal-counts", "random-guess"]
found = audit(work / "deltas", attacks, progress=False)
shares = found.results.query("metric == 'l1'")
shares[["attack", "role", "mean", "low", "high", "n"]].round(3)

# %%
# * **mean, low, high**: the mean over people, and its 95% interval for people like these. One training with one seed
#   says nothing about another training.
# * **n**: the number of people. A person in several rounds counts once.
# * **role**: a baseline is what attacks are compared with. ``random-guess`` and ``equal-counts`` (the
#   same share for each class) do not read the update. An attack shows a leak where it infers more than the best
#   baseline.

best = shares[shares["role"] != "baseline"].sort_values("mean").iloc[0]
baseline = shares[shares["role"] == "baseline"].sort_values("mean").iloc[0]
print(f"{best['attack']}: {best['mean']:.2f}; {baseline['attack']}: {baseline['mean']:.2f}")

# %%
# People differ: the worst case is a row of ``scores``, which has one per person and metric.

scores = found.scores.query("metric == 'l1' and attack == 'exact-counts'")
scores["value"].describe().round(3)

# %%
# The figures
# -----------
# Those of the report: attacks in colours, grey baselines; the dotted line is guessing.

show(found)

# %%
# The page and the files
# ----------------------
# ``program.main`` is the command ``fedleak``. ``fedleak audit DIR`` writes these files for all attacks; here
# ``run`` does for one.

status = program.main(["run", str(work / "deltas"), "--attack", "exact-counts", "--out", str(work / "one")])
print("exit status", status)
sorted(path.name for path in (work / "one").iterdir())

# %%
# ``report.html`` is for people, ``results.json`` for programs, ``scores.csv`` has a row per person and metric. In CI,
# ``fedleak audit DIR --gate l1=0.1`` fails if an attack gets nearer than that to the shares: :doc:`/docs/audit/gate`.
