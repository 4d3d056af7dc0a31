"""
Audit your own arrays
=====================

Any federated system can be audited from arrays on a disk: for every round the global model, and what each client sent.
Here the system is a softmax regression in NumPy, so that nothing of fedleak takes part in the training.
"""

# %%
# A small system
# --------------
# Eight clients have 60 digits each, in proportions of their own, and make three steps on them in every round.

import tempfile
from pathlib import Path

import numpy as np
import yaml
from sklearn.datasets import load_digits

from fedleak import audit, show
from fedleak.commands import program

work = Path(tempfile.mkdtemp())
random = np.random.default_rng(0)
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)

CLIENTS, EXAMPLES, CLASSES = 8, 60, 10
parts = []
for _ in range(CLIENTS):
    wanted = random.dirichlet(np.full(CLASSES, 0.5))[labels] + 1e-6
    parts.append(random.choice(len(labels), EXAMPLES, replace=False, p=wanted / wanted.sum()))


def train(model: dict[str, np.ndarray], part: np.ndarray) -> dict[str, np.ndarray]:
    """Three steps of gradient descent."""
    weight, bias = model["output.weight"], model["output.bias"]
    for _ in range(3):
        logits = images[part] @ weight.T + bias
        probability = np.exp(logits - logits.max(1, keepdims=True))
        probability /= probability.sum(1, keepdims=True)
        error = probability - np.eye(CLASSES)[labels[part]]
        weight = weight - 0.5 * error.T @ images[part] / len(part)
        bias = bias - 0.5 * error.mean(0)
    return {"output.weight": weight.astype(np.float32), "output.bias": bias.astype(np.float32)}


# %%
# The dump
# --------
# Each model is one ``.npz`` file. The manifest says what they are. ``truth`` is what attacks are scored against, so it
# is there where the clients' data are known: in a simulation of your system, or on consenting clients.

model = {"output.weight": np.zeros((CLASSES, 64), np.float32), "output.bias": np.zeros(CLASSES, np.float32)}
rounds = []
for number in range(2):
    np.savez(work / f"global{number}.npz", **model)
    sent = [train(model, part) for part in parts]
    clients = []
    for client, (own, part) in enumerate(zip(sent, parts, strict=True)):
        file = f"round{number}-client{client}.npz"
        np.savez(work / file, **own)
        counts = np.bincount(labels[part], minlength=CLASSES).tolist()
        clients.append(
            {"client": f"phone-{client}", "examples": EXAMPLES, "file": file, "truth": {"class_counts": counts}}
        )
    rounds.append({"round": number, "model": f"global{number}.npz", "clients": clients})
    model = {name: np.mean([own[name] for own in sent], 0) for name in model}

manifest = {
    "format": 1,
    "data": {"name": "digits"},
    "holds": "models",
    "parameters": {name: list(value.shape) for name, value in model.items()},
    "rounds": rounds,
}
_ = (work / "manifest.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))

# %%
# Convert and audit
# -----------------
# ``program.main`` is the command ``fedleak``; it returns the exit status.

status = program.main(["convert", str(work / "manifest.yaml"), "--out", str(work / "deltas")])

# %%
# :func:`evaluation.audit` runs every attack that fits. The recording names no learner, so attacks that simulate clients
# do not run; those that read the class shares from the bias of the last layer do, and so do those that ask which
# updates of different rounds come from the same client.

found = audit(work / "deltas", progress=False)
show(found)

# %%
# What could not run, and what it lacks:

for name, reason in list(found.missing.items())[:4]:
    print(f"{name}: {reason}")

# %%
# The page for people is written by ``fedleak audit DIR``.
# :doc:`/docs/reference/recording-format` describes what else a dump may hold; more of it lets more attacks run.
