"""What a training prints: nothing of other packages that a person cannot act on, and a named, complete W&B run."""

import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import Namespace
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

from fedleak.tables.quiet import quieten
from fedleak.tables.training import name_run
from tests.places import ROOT

NAME = "lightning.pytorch.utilities.rank_zero"
SMALL = (
    "--data.users",
    "24",
    "--data.clients_per_round",
    "8",
    "--trainer.max_steps",
    "2",
    "--trainer.val_check_interval",
    "2",
)
COMMAND = (sys.executable, "train.py", "fit", "--config", "configs/train/fncf_synthetic.yaml", *SMALL)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("💡 Tip: For seamless cloud logging and experiment tracking, try installing [litlogger]", False),
        ("Seed set to 0", False),
        ("GPU available: False, used: False", False),
        ("`Trainer.fit` stopped: `max_steps=2` reached.", False),
        ("GPU available: True (cuda), used: False", True),
        ("`Trainer.fit` stopped: `max_epochs=2` reached.", True),
        ("Restored all states from the checkpoint at x", True),
    ],
)
def test_known_messages_are_hidden_and_no_others(message: str, shown: bool, caplog: pytest.LogCaptureFixture) -> None:
    quieten()
    logger = logging.getLogger(NAME)
    handled = logger.filter(logging.LogRecord(NAME, logging.INFO, "", 0, message, (), None))
    assert bool(handled) == shown


def test_a_warning_is_hidden_by_its_text_alone() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quieten()
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated, use another", FutureWarning, stacklevel=1)
        warnings.warn("`isinstance(x, y)` is deprecated", FutureWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == ["`isinstance(x, y)` is deprecated"]


@pytest.mark.parametrize(
    ("given", "environment", "name"), [(None, {}, "x"), ("mine", {}, "mine"), (None, {"WANDB_SWEEP_ID": "s"}, None)]
)
def test_a_wandb_run_is_named_after_its_folder(given: str | None, environment: dict[str, str], name: str) -> None:
    logger = Namespace(name=given, project="fedleak", save_dir="runs/x")  # type: ignore[no-untyped-call]
    name_run(logger, environment)
    assert logger.name == name


@pytest.mark.integration
def test_a_training_prints_its_bar_its_files_and_the_next_command(tmp_path: Path) -> None:
    wandb = ("--config", "configs/trainer/wandb_offline.yaml")
    line = [*COMMAND, "--trainer.default_root_dir", str(tmp_path / "mine"), *wandb]
    environment = {**os.environ, "WANDB_SILENT": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = [part for part in done.stderr.replace("\r", "\n").splitlines() if part.strip()]
    assert [part for part in kept if not part.startswith(("rounds:", "wandb:"))] == []
    *places, following = done.stdout.splitlines()
    assert [place.partition(":")[0] for place in places] == ["recording", "config", "checkpoint"]
    assert following == f"next: fedleak audit {tmp_path / 'mine' / 'deltas'}"

    (log,) = (tmp_path / "mine" / "wandb").glob("offline-run-*/run-*.wandb")
    (started, *_), history, config = logged(log)
    assert started == "mine"
    assert "model" in config
    losses = [row["train/local_loss"] for row in history if "train/local_loss" in row]
    assert len(losses) == 2


def logged(log: Path) -> tuple[list[str], list[dict[str, Any]], set[str]]:
    """Names of the runs in an offline log, their rows of history, and the first parts of the configuration's keys."""
    store = DataStore()
    store.open_for_scan(str(log))
    names, rows, keys = [], [], set()
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        updates = [*record.run.config.update, *record.config.update]
        keys |= {(entry.key or entry.nested_key[0]).partition("/")[0] for entry in updates}
        if kind == "run":
            names.append(record.run.display_name)
        elif kind == "history":
            items = record.history.item
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return names, rows, keys
