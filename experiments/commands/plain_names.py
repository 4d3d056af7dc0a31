"""Translation of the arguments of ``attack.py`` to the form that its parser reads."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from protocol.errors import require

_FLAGS = ("--slow", "--persons")


def plain_names(args: Sequence[str]) -> list[str]:
    """Arguments in the form of the parser, from the documented form.

    ``--data.root DIR`` becomes ``--root``, because a key cannot be both a value and a group; repeated ``--gate``,
    ``--attacks``, ``--format``, ``--set`` and ``--learner.NAME VALUE`` become JSON; ``--slow`` and
    ``--persons`` may stand alone; names of attacks become class paths.
    """
    plain: list[str] = []
    added: list[str] = []
    formats: list[str] = []
    limits: list[str] = []
    overrides: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    alone = [following is None or following.startswith("-") for following in (*args[1:], None)][: len(args)]
    left = iter(f"{word}=true" if word in _FLAGS and own else word for word, own in zip(args, alone, strict=True))
    for argument in left:
        head, given, value = argument.partition("=")
        if head == "--gate":
            limits += [value if given else next(left, "")]
        elif head == "--attacks":
            added += _words(value if given else next(left, ""))
        elif head == "--format":
            formats += _words(value if given else next(left, ""))
        elif head == "--attack":
            plain += ["--attack", _class_path(value if given else next(left, ""))]
        elif head == "--set":
            overrides |= _override(value if given else next(left, ""))
        elif head.startswith("--learner."):
            text = value if given else next(left, "")
            arguments = _nested(arguments, head.removeprefix("--learner.").split("."), yaml.safe_load(text))
        elif argument == "--dry-run":
            plain.append("--dry_run=true")
        elif head.startswith("--gate."):
            limits += [f"{head.removeprefix('--gate.')}={value}"]
        else:
            plain.append(re.sub(r"^--data\.root(?==|$)", "--root", argument))
    plain += ["--gate", json.dumps(limits)] if limits else []
    plain += ["--set", json.dumps(overrides)] if overrides else []
    plain += ["--learner_arguments", json.dumps(arguments)] if arguments else []
    plain += ["--format", json.dumps(formats)] if formats else []
    return [*plain, "--attacks", json.dumps(added)] if added else plain


def _words(text: str) -> list[str]:
    """Words of a list: ``a,b`` or ``[a, b]``."""
    return text.strip("[]").replace(",", " ").split()


def _nested(values: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Arguments with one more, at a path of names."""
    head, *below = path
    inner = values.get(head)
    return {**values, head: _nested(inner if isinstance(inner, Mapping) else {}, below, value) if below else value}


def _override(text: str) -> dict[str, Any]:
    """Key of ``train.py`` with its value, from KEY=VALUE."""
    key, given, value = text.partition("=")
    require(given, "--set KEY=VALUE", text or "nothing", "E.g. --set model.local.epochs=5.")
    return {key: yaml.safe_load(value)}


def _class_path(name: str) -> str:
    """Class path of an attack's name or class name, such as ``Direction``."""
    from attacks.registry import REGISTRY, find

    known = [kind for kind in REGISTRY.values() if kind.__name__ == name]
    kind = known[0] if len(known) == 1 else find(name)
    return f"{kind.__module__}.{kind.__qualname__}"


def read_gate(texts: Iterable[str]) -> dict[str, float]:
    """Limits from the command line: ``auc=0.6``, ``auc=0.6,f1=0.5`` or JSON.

    Raises:
        InputError: a text has another form, or a limit is not a finite number.
    """
    limits: dict[str, float] = {}
    for text in texts:
        try:
            if text.lstrip().startswith("{"):
                pairs = [(str(name), str(limit)) for name, limit in json.loads(text).items()]
            else:
                pairs = [part.partition("=")[::2] for part in text.split(",")]
            wrong = [limit for _, limit in pairs if "_" in limit]
            limits |= {name.strip(): float(limit) for name, limit in pairs}
        except (ValueError, TypeError, AttributeError, RecursionError):
            wrong = [text]
        require(not wrong, "--gate METRIC=NUMBER", text, "E.g. --gate auc=0.6 or --gate l1=0.3.")
    for name, limit in limits.items():
        require(math.isfinite(limit), f"a finite limit on {name}", limit, "Set a number.")
    return limits
