"""Fuzz target: files that a lint reads, of any format, from whoever sent them."""

import hashlib
import io
import json
import random
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from fedleak_recorder.lint.linting import linted
from fedleak_recorder.lint.reading import read_message
from tests.fuzz.mutations import change_bytes, change_npz, change_value
from tests.fuzz.recordings import Files
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong
from tests.tree_toys import model_values


def whole_messages() -> Files:
    """One message in each format: archives, tensors, JSON, a table, the model of a forest."""
    draws = np.random.default_rng(0)
    weights = draws.standard_normal((12, 5)).astype(np.float32)
    archive = io.BytesIO()
    np.savez(archive, weights=weights, places=np.arange(12))
    single = io.BytesIO()
    np.save(single, weights)
    people = [{"age": 30 + number, "sex": "fm"[number % 2], "bmi": 20.5 + number} for number in range(12)]
    return {
        "update.npz": archive.getvalue(),
        "update.npy": single.getvalue(),
        "update.safetensors": save({"weights": weights}),
        "message.json": json.dumps({"people": people, "metrics": {"loss": 0.5, "num-examples": 12}}).encode(),
        "forest.json": json.dumps(model_values()).encode(),
        "table.csv": b"age,bmi\n" + b"".join(b"%d,%.1f\n" % (30 + row, 20.5 + row) for row in range(12)),
    }


def change_message(files: Files, draws: random.Random) -> Mutant:
    """One file with other bytes, another value of JSON, or another array."""
    name = draws.choice(sorted(files))
    content = files[name]
    if name.endswith(".json") and draws.random() < 0.7:
        value, said = change_value(json.loads(content), draws)
        changed = json.dumps(value).encode()
    elif name.endswith(".npz") and draws.random() < 0.7:
        changed, said = change_npz(content, draws)
    else:
        changed, said = change_bytes(content, draws)
    return {**files, name: changed}, f"{name}: {said}"


def read_lint(folder: Path) -> str:
    """All findings of all files, as a hash."""
    said = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        for finding in linted(read_message(path)):
            said.update(repr(finding).encode())
    return said.hexdigest()


def targets() -> list[Parts]:
    """Messages of any format."""
    return [("messages of a lint", whole_messages, change_message, read_lint, nothing_wrong)]
