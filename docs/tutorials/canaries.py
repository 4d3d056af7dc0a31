"""
Is the declared epsilon true? Canaries
======================================

A canary is a client that lives in one of two worlds, by a secret coin. If an attacker infers the coins too well, the
noise is weaker than declared. :doc:`/docs/audit/canaries` explains the bounds.
"""

# %%
# A training with canaries
# ------------------------
# All 200 clients are canaries: they send a random direction or its opposite, clipped, with noise for epsilon 8.

import logging
import tempfile
from pathlib import Path

from lightning import Trainer

from fedleak import AuditResult, DeltaRecorder, audit
from fedleak.datamodules import SyntheticRecommender
from fedleak.defenses import Canaries, LocalDP
from fedleak.modules import FNCF
from fedleak.tables.quiet import quieten

quieten()
logging.getLogger("defenses").setLevel(logging.ERROR)
work = Path(tempfile.mkdtemp())
CLIP = 0.5


def audited(name: str, sensitivity: float) -> AuditResult:
    """An audit of one round whose noise is calibrated for a distance of two clients' updates."""
    noise = LocalDP(clip=CLIP, epsilon=8, delta=1e-5, sensitivity=sensitivity)
    folder = work / name
    trainer = Trainer(
        max_steps=1,
        default_root_dir=folder,
        callbacks=[DeltaRecorder()],
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    data = SyntheticRecommender(users=200, items=60, mean_interactions=12, fewest_interactions=5)
    trainer.fit(FNCF(defenses=[Canaries(kind="update"), noise]), data)
    return audit(folder / "deltas", ["canary-bounds", "coin-guess"], progress=False)


# %%
# Noise as it should be
# ---------------------
# Two clipped updates are up to twice the clip apart.

right = audited("right", sensitivity=2 * CLIP)
right.results[["attack", "metric", "mean", "n"]].round(2)

# %%
# ``coin`` is the share of coins that are inferred. The ``epsilon`` rows are lower bounds at 95 %, so in 19 of 20 such
# trainings none is above 8, and the claim is not refuted. Nor is it proved: the bounds only say what this attacker was
# shown.
#
# Half of the noise
# -----------------
# A common mistake: the noise is calibrated for a distance of one clip.

wrong = audited("wrong", sensitivity=CLIP)
wrong.results[["attack", "metric", "mean", "n"]].round(2)

# %%
# A bound above 8 refutes the claim. Bounds that assume less need more canaries for it.

bounds = wrong.results.query("metric == 'epsilon-gdp'")["mean"]
print(f"declared 8, at least {bounds.max():.1f}")
