"""``attack.py list``: all attacks, those of one question, or those that fit a recording."""

import difflib
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedleak.core.errors import require
from fedleak.evaluation.kept_fits import kept_misfits
from fedleak.reports.attack_descriptions import AttackDescription, described
from fedleak.reports.text_table import wrapped_table

_COLUMNS = ("name", "kind", "threat\nmodel", "paper, cost", "needs")
_WIDEST = 100
"""Largest number of columns of the text."""


def list_attacks(
    question: str | None = None,
    fits: str | None = None,
    learner: str | None = None,
    learner_arguments: dict[str, Any] | None = None,
) -> int:
    """Prints every attack by question: exact or statistical, its threat model, its paper, its cost and what it needs.

    The threat model is a letter; with the names of the question in NIST AI 100-2, MITRE ATLAS and OWASP AISVS, it is
    explained in docs/taxonomies.md.

    Args:
        question: family of attacks, or a word of its name; None for all.
        fits: folder of a recording, of which the attacks are printed that it has the data for; then the others, with
            the reason.
        learner: learner in place of the one in the recording's manifest, see `open_recording`.
        learner_arguments: its arguments.

    Raises:
        InputError: there is no such question or recording.
    """
    chosen = _of_question(described(), question)
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    if fits is None:
        require(learner is None, "--fits DIR before --learner", f"--learner {learner}", "Name the recording.")
        print("\n".join(_by_family(chosen, width)))
        return 0
    missing = _misfits(fits, learner, learner_arguments, [f"{one.family}/{one.name}" for one in chosen])
    print("\n".join(_by_family([one for one in chosen if f"{one.family}/{one.name}" not in missing], width)))
    print(f"\n{len(chosen) - len(missing)} of {len(chosen)} attacks fit {Path(fits)}.")
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        print(textwrap.fill(f"{', '.join(names)}: {reason}.", width, subsequent_indent="  ", break_on_hyphens=False))
    return 0


def _misfits(
    folder: str, learner: str | None, learner_arguments: dict[str, Any] | None, names: Sequence[str]
) -> dict[str, str]:
    """Reason by ``family/name`` of the attacks that do not fit a recording."""
    if learner is None and not learner_arguments:
        return kept_misfits(Path(folder), names)
    # A learner may be the user's own code, of which the cache knows nothing.
    from fedleak.commands.open_recording import open_recording
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.registry import REGISTRY

    return misfits(open_recording(folder, learner, learner_arguments), [REGISTRY[name]() for name in names])


def _of_question(attacks: Sequence[AttackDescription], question: str | None) -> list[AttackDescription]:
    """Attacks of a family, or of all families with a word in their names."""
    chosen = [one for one in attacks if question is None or question in (one.family, *one.family.split("-"))]
    families = list(dict.fromkeys(one.family for one in attacks))
    near = difflib.get_close_matches(str(question), [*families, *(w for one in families for w in one.split("-"))], n=1)
    way_out = f"Did you mean {near[0]}?" if near else f"Questions: {', '.join(families)}."
    require(chosen, "--question: a family of attacks, or a word of its name", repr(question), way_out)
    return chosen


def _by_family(attacks: Sequence[AttackDescription], width: int) -> list[str]:
    families: dict[str, dict[str, list[AttackDescription]]] = {}
    for one in attacks:
        families.setdefault(f"{one.family}: {one.question}", {}).setdefault(one.inferred, []).append(one)
    lines: list[str] = []
    for heading, questions in families.items():
        lines += ["", *textwrap.wrap(heading, width)]
        for inferred, of_question in questions.items():
            lines += ["", *textwrap.wrap(f"Infers {inferred}{_taxonomies(of_question)}", width)]
            lines += wrapped_table(_COLUMNS, [_row(one) for one in of_question], width)
    return lines[1:]


def _taxonomies(attacks: Sequence[AttackDescription]) -> str:
    """Names of a question in public taxonomies, in parentheses; with those of single attacks that differ."""
    by_names: dict[str, list[str]] = {}
    for one in attacks:
        by_names.setdefault(" ".join(one.names[:-1]), []).append(one.name)
    common, *others = sorted(by_names, key=lambda names: -len(by_names[names]))
    words = [common, *(f"{', '.join(by_names[names])}: {names}" for names in others)]
    return f" ({'; '.join(words)})" if any(by_names) else ""


def _row(one: AttackDescription) -> tuple[str, ...]:
    kind = "baseline" if one.baseline else "exact" if one.exact else "statistical"
    paper = "; ".join(one.references) or ("" if one.baseline else "ours")
    return one.name, kind, one.names[-1], "\n".join(filter(None, [paper, one.cost])), ", ".join(one.needs)
