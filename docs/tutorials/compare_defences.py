"""
A defence and its curve
=======================

A defence is worth what it costs. The same training with local DP of several strengths, and two measurements of each:
what an attack infers from the updates, and how well the model works.
"""

# %%
# Train at several epsilons
# -------------------------
# Each client clips its update to norm 1 and adds Gaussian noise, calibrated for one round. A training of many
# rounds spends more, see :doc:`/docs/start/pitfalls`. ``inf`` switches the defence off.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from lightning import Trainer, seed_everything

from fedleak import DeltaRecorder, LocalTraining, audit
from fedleak.datamodules import ClientSplit, Digits
from fedleak.defenses import LocalDP
from fedleak.modules import FederatedClassifier
from fedleak.tables.quiet import quieten

quieten()
work = Path(tempfile.mkdtemp())
ROUNDS = 40
ATTACKS = ["exact-counts", "last-layer-counts", "equal-counts", "random-guess"]


def measured(epsilon: float) -> dict[str, float]:
    """Accuracy after the last round, and the L1 distances of attacks on the first."""
    seed_everything(0, verbose=False)
    folder = work / f"epsilon-{epsilon:g}"
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        max_steps=ROUNDS,
        val_check_interval=ROUNDS,
        default_root_dir=folder,
        callbacks=[DeltaRecorder()],
        logger=False,
        **quiet,
    )
    model = FederatedClassifier(
        local=LocalTraining(optimizer="sgd", learning_rate=0.3, batch_size=12),
        defenses=[LocalDP(clip=1.0, epsilon=epsilon, delta=1e-5)],
    )
    split = ClientSplit(scheme="dirichlet", clients=10, examples_per_client=72)
    trainer.fit(model, Digits(split=split))
    found = audit(folder / "deltas", ATTACKS, rounds=[0], progress=False).results.query("metric == 'l1'")
    distance = found.set_index("attack")["mean"]
    return {
        "epsilon": epsilon,
        "best attack": distance[["exact-counts", "last-layer-counts"]].min(),
        "best baseline": distance[["equal-counts", "random-guess"]].min(),
        "accuracy": float(trainer.callback_metrics["val/accuracy"]),
    }


rows = pd.DataFrame([measured(epsilon) for epsilon in (float("inf"), 300.0, 100.0, 30.0)])
rows.round(3)

# %%
# The curve
# ---------
# Up is a more useful model, right is less leakage. The grey line is the best baseline under the strongest noise: an
# attack there has learned nothing from the update. ``inf`` switches the clip off too. A clip steadies a training with
# large steps, so the weakest defence may cost nothing here.

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot(rows["best attack"], rows["accuracy"], "o-")
for _, row in rows.iterrows():
    axes.annotate(
        f"epsilon {row['epsilon']:g}", (row["best attack"], row["accuracy"]), (6, 4), textcoords="offset points"
    )
axes.axvline(rows["best baseline"].iloc[-1], color="0.5", linestyle=":")
axes.set(xlabel="L1 distance of inferred class shares", ylabel="accuracy of the model", xlim=(0, 1.2), ylim=(0, 1))
plt.show()

# %%
# Ten clients and one seed: the curve shows how it is drawn. ``fedleak reproduce`` runs such a grid over seeds, and
# its report draws it, see :doc:`/docs/reference/tables`.
