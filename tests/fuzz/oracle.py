"""Whether what was accepted contradicts itself; written apart from the readers, so that both would have to err."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.torch import load

Array = npt.NDArray[Any]


def contradiction(files: Mapping[str, bytes]) -> str | None:
    """What a whole recording says that cannot be, None where it may be true."""
    try:
        return next(_of_recording(files), None)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        return f"{type(error).__name__} {error}"


def _of_recording(files: Mapping[str, bytes]) -> Iterator[str]:
    manifest = json.loads(files["manifest.json"])
    for release in manifest["releases"]:
        if not release["noise_scale"] >= 0 or (release["clip"] is not None and not release["clip"] > 0):
            yield f"release {release}"
    lines = [json.loads(line) for name in files if name.startswith("journal") for line in _whole_lines(files[name])]
    named = {line["file"]: line for line in lines if "file" in line}
    for name in named:
        if name.startswith("rounds/"):
            seen = _arrays(files[name])
            yield from _of_round(seen, manifest)
            truth = name.replace("rounds/", "truth/")
            if truth in named:
                yield from _of_truth(_arrays(files[truth]), seen)
    if "auxiliary.safetensors" in files:
        yield from _not_finite(_arrays(files["auxiliary.safetensors"]))


def _whole_lines(journal: bytes) -> list[str]:
    return journal.decode().split("\n")[:-1]


def _arrays(content: bytes) -> dict[str, Array]:
    tensors = load(content).items()
    return {name: value.double().numpy() if value.is_floating_point() else value.numpy() for name, value in tensors}


def _not_finite(arrays: Mapping[str, Array]) -> Iterator[str]:
    return (f"{name} is not finite" for name, value in arrays.items() if not np.isfinite(value).all())


def _of_round(seen: Mapping[str, Array], manifest: Mapping[str, Any]) -> Iterator[str]:
    numbers = ("deltas/", "rows/", "model/", "features")
    yield from _not_finite({name: value for name, value in seen.items() if name.startswith(numbers)})
    clients = seen["clients"]
    if len(set(clients.tolist())) != len(clients) or clients.ndim != 1:
        yield "a client twice"
    if seen["counts"].shape != clients.shape or not (seen["counts"] >= 0).all():
        yield "counts"
    rows = len(seen["served"]) if "served" in seen else 0
    for name, described in manifest["parameters"].items():
        table = name in manifest["row_parameters"]
        expected = (rows, *described["shape"][1:]) if table else (len(clients), *described["shape"])
        if seen[f"rows/{name}" if table else f"deltas/{name}"].shape != expected:
            yield f"shape of {name}"
        if f"model/{name}" in seen and seen[f"model/{name}"].shape != tuple(described["shape"]):
            yield f"shape of the model's {name}"
    if "served" in seen:
        yield from _of_served(seen)


def _of_served(seen: Mapping[str, Array]) -> Iterator[str]:
    offsets, served = seen["offsets"].tolist(), seen["served"].tolist()
    if offsets[0] != 0 or offsets[-1] != len(served) or len(offsets) != len(seen["clients"]) + 1:
        yield "offsets"
    for begin, end in itertools.pairwise(offsets):
        own = served[begin:end]
        if end < begin or min(own, default=0) < 0 or (len(set(own)) < len(own) and "lists" not in seen):
            yield "served items"


def _of_truth(truth: Mapping[str, Array], seen: Mapping[str, Array]) -> Iterator[str]:
    yield from _not_finite(truth)
    if any(len(value) != len(seen["clients"]) for name, value in truth.items() if name.startswith("client")):
        yield "truth of other clients"
    if "labels" in truth:
        labels = truth["labels"]
        if labels.shape != seen["served"].shape or not ((labels >= 0) & (labels <= 1)).all():
            yield "labels"
        if truth["offsets"].tolist() != seen["offsets"].tolist():
            yield "offsets of the truth"
    counts = truth.get("client/class_counts")
    if counts is not None and (not (counts >= 0).all() or not (counts.astype(float).sum(1) > 0).all()):
        yield "class counts"


def lines_of(pattern: str) -> Callable[[bytes], bool]:
    """Whether every line of a file is of one form."""
    line = re.compile(pattern)

    def fits(content: bytes) -> bool:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return False
        return all(line.fullmatch(one) for one in text.removesuffix("\n").split("\n"))

    return fits


_USER, _TIME = r"[0-9]{1,18}", r"[0-9]{1,18}"
_NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
GRAMMARS: dict[str, Callable[[bytes], bool]] = {
    "ml-100k/u.data": lines_of(rf"{_USER}\t{_USER}\t(?:[1-4](?:\.[0-9]*)?|0?\.[5-9]|5)\t{_TIME}\t?\r?"),
    "ml-1m/ratings.dat": lines_of(rf"{_USER}::{_USER}::(?:[1-4](?:\.[0-9]*)?|5)::{_TIME}(?:::)?\r?"),
    "steam-200k/steam-200k.csv": lines_of(
        r'"?[0-9]{1,18}"?,(?:"(?:[^"]|"")+"[^",]*|[^",][^,]*),[^,]+,"?[0-9.]+"?,[^,]+,?\r?|'
    ),
    "fer2013/fer2013.csv": lines_of(
        r'"?[0-6]"?,"?[0-9]{1,3}(?: +[0-9]{1,3}){2303} *"?,(?:Training|PublicTest|PrivateTest)\r?|.*emotion.*|'
    ),
    "MQ2008/Fold1/train.txt": lines_of(rf"[0-2] +qid:-?[0-9]{{1,18}}(?: +[0-9]+:{_NUMBER}){{46}} *(?:#.*)?\r?|"),
}
"""By file, whether its content is of the form that the data set's page describes; generous where readers may be."""
