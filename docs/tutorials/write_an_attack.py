"""
Write an attack
===============

An attack is a class with hyper-parameters, a description of itself, and ``run``: a server view in, an estimate out. It
needs no entry in any list.
"""

# %%
# A recording to attack
# ---------------------

import dataclasses
import tempfile
from pathlib import Path

import torch
from lightning import Trainer

from fedleak import Attack, DeltaRecorder, LocalTraining, RoundView, ThreatModel, audit, show
from fedleak.attacks.composition.base import certain
from fedleak.attacks.composition.estimates import CompositionEstimate
from fedleak.datamodules import ClientSplit, Digits
from fedleak.modules import FederatedClassifier
from fedleak.tables.quiet import quieten

quieten()
work = Path(tempfile.mkdtemp())
options = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
trainer = Trainer(max_steps=1, default_root_dir=work, callbacks=[DeltaRecorder()], **options)
model = FederatedClassifier(local=LocalTraining(optimizer="sgd", learning_rate=0.1, batch_size=12))
trainer.fit(model, Digits(split=ClientSplit(scheme="dirichlet", clients=12, examples_per_client=72)))

# %%
# The attack
# ----------
# With cross-entropy, a step on one example moves the bias of its class up and all others down. So the classes of which
# a client has many examples are those whose biases rise. The attack raises all changes until none is negative, and
# takes them as shares.


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiasShares(Attack):
    """Class shares in proportion to the changes of the output bias, raised by the least of them.

    Threat model: passive server, one round.

    Args:
        power: exponent of the changes before they are normalised.
    """

    name = "bias-shares"
    family = "composition"
    estimates = CompositionEstimate
    threat_model = ThreatModel(
        sees="the update of the output bias", knows="nothing else", needs=("deltas:output.bias",)
    )

    power: float = 1.0

    def run(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        change = view.deltas["output.bias"].double()
        raised = (change - change.amin(1, keepdim=True)) ** self.power
        shares = raised / raised.sum(1, keepdim=True)
        return certain(shares, shares > 0)


# %%
# Its test
# --------
# An attack must fail where it is fed another client's update. Otherwise it does not read the update, or it reads
# something that it should not.


class OfAnother(BiasShares):
    """The same attack, with the next client's update."""

    name = "bias-shares-of-another"

    def run(self, view: RoundView, *, generator: torch.Generator) -> CompositionEstimate:
        moved = {name: delta.roll(1, 0) for name, delta in view.deltas.items()}
        return super().run(dataclasses.replace(view, deltas=moved), generator=generator)


found = audit(work / "deltas", [BiasShares(), OfAnother(), "last-layer-counts", "random-guess"], progress=False)
show(found)

# %%
# Where it goes
# -------------
# In a package of yours, it runs by its class path: ``fedleak audit DIR --also my_package.BiasShares``, or
# ``attacks: {my_package.BiasShares: {power: 2}}`` in a table. In fedleak, it is one file of ``attacks/``, its export
# and its test: :doc:`/CONTRIBUTING`.
