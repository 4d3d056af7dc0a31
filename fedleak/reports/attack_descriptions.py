"""What the attacks say of themselves, kept in the user's cache: a list of attacks then takes no import of torch."""

import contextlib
import hashlib
import inspect
import json
import sys
from dataclasses import asdict, dataclass

from fedleak.core.cache import cache_folder
from fedleak.core.places import PACKAGE

_DESCRIBING = ("attacks", "client", "core")
"""Packages whose source the descriptions depend on."""
NO_DATA = frozenset({"clients", "user", "known_user", "coin"})
"""Ground truth that says nothing of the content of a client's data."""


@dataclass(frozen=True)
class AttackDescription:
    """What an attack says of itself; the attributes are those of `fedleak.core.attack.Attack`.

    Attributes:
        question: first line of the documentation of its family.
        inferred: what the server infers, from the attack's type of estimate.
        needs: what the threat model needs, as text.
        estimates: name of that question in results, see `fedleak.core.estimates.Estimate.question`.
        is_prior: whether it is a baseline that says, without the update, how likely the answers are.
        names: names in public taxonomies, see `fedleak.core.taxonomy.Taxonomy`.
        about_data: whether the question is about the content of a client's data: other ground truth scores it than who
            sent which update, and in which of two worlds a canary is.
    """

    name: str
    family: str
    question: str
    inferred: str
    baseline: bool
    exact: bool
    references: list[str]
    cost: str
    needs: list[str]
    names: list[str]
    about_data: bool
    estimates: str
    is_prior: bool


def described() -> list[AttackDescription]:
    """The attacks of `fedleak.evaluation.registry`, in its order; read from the cache until a source file changes."""
    files = [path for package in _DESCRIBING for path in sorted((PACKAGE / package).rglob("*.py"))]
    facts = [(str(path), status.st_size, status.st_mtime_ns) for path in files for status in [path.stat()]]
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    name = f"attacks-{hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:12]}.json"  # one of each checkout
    with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError, KeyError):  # none, or a damaged one
        kept = json.loads((cache_folder() / name).read_text(encoding="utf-8"))
        if kept["key"] == key:
            return [AttackDescription(**one) for one in kept["attacks"]]
    found = _imported()
    with contextlib.suppress(OSError, RuntimeError):  # a folder that cannot be written
        cache_folder().mkdir(parents=True, exist_ok=True)
        content = json.dumps({"key": key, "attacks": [asdict(one) for one in found]})
        (cache_folder() / name).write_text(content, encoding="utf-8")
    return found


def _imported() -> list[AttackDescription]:
    from fedleak.evaluation.registry import REGISTRY

    return [
        AttackDescription(
            name=kind.name,
            family=kind.family,
            question=(inspect.getdoc(sys.modules[kind.__module__.rpartition(".")[0]]) or "").partition("\n")[0],
            inferred=kind.estimates.inferred,
            baseline=kind.baseline,
            exact=kind.exact,
            references=list(kind.references),
            cost=kind.cost,
            needs=list(kind.threat_model.described_needs),
            names=list(kind.public_names().names),
            about_data=bool(set(kind.estimates.truth) - NO_DATA),
            estimates=kind.estimates.question(),
            is_prior=kind.is_prior,
        )
        for kind in REGISTRY.values()
    ]
