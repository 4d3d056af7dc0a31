"""Harmless files, whose reading says what is usual, and controls that each do what no file may make a reader do."""

import functools
import importlib
import socket
import subprocess
from collections.abc import Callable
from typing import Any

from safetensors.torch import load_file

from fedleak.commands import program, train
from tests.foreign_toys import write_dump
from tests.fuzz.hostile_files import MODULE, Place, whole_results
from tests.fuzz.recordings import recording, write_tree
from tests.places import CONFIGS
from tests.transformer_toys import coherent_base

Made = tuple[str, Callable[[], object]]


def recording_of_clicks(place: Place) -> Made:
    folder = write_tree(place.inside / "recording", recording("clicks"))
    args = ["run", "--attack", "direction", str(folder), "--out", str(place.inside / "out")]
    return "", functools.partial(program.main, args)


def audit_of_clicks(place: Place) -> Made:
    folder = write_tree(place.inside / "recording", recording("clicks"))
    args = ["audit", "--minutes", "0.05", str(folder), "--out", str(place.inside / "out")]
    return "", functools.partial(program.main, args)


def recording_of_classes(place: Place) -> Made:
    folder = write_tree(place.inside / "recording", recording("classes"))
    args = ["run", "--attack", "exact-counts", str(folder), "--out", str(place.inside / "out")]
    return "", functools.partial(program.main, args)


def results_and_dump(place: Place) -> Made:
    folder = write_tree(place.inside / "run", whole_results())
    path = write_dump(place.inside / "dump")

    def both() -> int:
        status = program.main(["report", str(folder), "--out", str(place.inside / "page")])
        return status or program.main(["convert", str(path), "--out", str(place.inside / "out")])

    return "", both


def training(place: Place) -> Made:
    args = ["fit", "--config", str(CONFIGS / "train" / "fncf_synthetic.yaml"), "--trainer.max_steps", "1"]
    return "", functools.partial(train.run, [*args, "--trainer.default_root_dir", str(place.inside / "run")])


def network_with_weights(place: Place) -> Made:
    own = coherent_base(place.inside, mean=1.0, decay=0.5)
    return "", lambda: own.network


HARMLESS: tuple[Callable[[Place], Made], ...] = (
    *(recording_of_clicks, audit_of_clicks, recording_of_classes, results_and_dump, training, network_with_weights),
)


def asks_for_a_host(place: Place) -> Made:
    def call() -> None:
        socket.getaddrinfo("stranger.invalid", 443)

    return "", call


def connects(place: Place) -> Made:
    def call() -> None:
        socket.create_connection(("192.0.2.1", 443), 1)

    return "", call


def opens_a_file(place: Place) -> Made:
    return "", (place.bait / "config.json").read_bytes


def lists_a_folder(place: Place) -> Made:
    return "", lambda: [*place.bait.iterdir()]


def opens_in_compiled_code(place: Place) -> Made:
    return "", functools.partial(load_file, place.bait / "model.safetensors")


def imports_a_module(place: Place) -> Made:
    return "", functools.partial(importlib.import_module, MODULE)


def starts_a_program(place: Place) -> Made:
    return "", functools.partial(subprocess.run, ["true"], check=False)


def wraps_another_library(place: Place) -> Made:
    """What a configuration could do before it had a closed list."""
    from transformers import AutoConfig, AutoModelForImageClassification

    def call() -> Any:
        config = AutoConfig.for_model("timm_wrapper", architecture=f"local-dir:{place.bait}")
        return AutoModelForImageClassification.from_config(config)  # type: ignore[no-untyped-call]

    return "", call


CONTROLS = (
    *("asks_for_a_host", "connects", "opens_a_file", "lists_a_folder", "opens_in_compiled_code", "imports_a_module"),
    *("starts_a_program", "wraps_another_library"),
)
"""Names of the controls: each must be seen."""
