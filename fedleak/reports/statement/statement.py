"""The statement of an audit: its content as JSON, format 3, and as a page."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedleak.core.attack import Attack
from fedleak.core.io.files import sha256_of, write_whole
from fedleak.core.places import PACKAGE
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.limits import BEYOND_BASELINE, CHANGE, FEWEST, Limit
from fedleak.evaluation.persons import over_clients
from fedleak.evaluation.run import Run
from fedleak.recordings.recording import Recording
from fedleak.reports.html import GENERATED
from fedleak.reports.metric_words import number_in_words, value_in_words
from fedleak.reports.statement.assessment import assessment
from fedleak.reports.statement.combined import combined, why_not_combined
from fedleak.reports.statement.content import Measured, Provenance, Scope, Statement, Verdict
from fedleak.reports.statement.gaps import not_tried
from fedleak.reports.statement.lowering import lowering
from fedleak.reports.statement.measured import measured
from fedleak.reports.statement.numbers import shown
from fedleak.reports.statement.page import html
from fedleak.reports.statement.privacy import privacy
from fedleak.reports.statement.sums import sums
from fedleak.reports.statement.system_file import Declaration, System

LIMITS = (
    "It is a lower bound on the leak at this date: other attacks, or the same with more knowledge, may infer more.",
    "It is never a proof of anonymity, and it is not legal advice.",
    "It holds for the recorded rounds and clients; other rounds, data and clients may leak more.",
    "The best attack of a question is chosen by the same clients that it is measured on.",
    "Clients exposed are an estimate for one question about each client; answers to several questions add up.",
    "What the controller declares was not checked, except where it says so.",
)


TERMS = (
    *("attack", "auxiliary data", "baseline", "bits", "client", "clients exposed", "epsilon"),
    *("ground truth", "honest but curious", "interval", "person", "prior", "recording", "round", "secure aggregation"),
    *("server", "update", "worst tenth"),
)
"""Terms that a statement explains."""


SHARED = (
    "Clients whose updates are in one sum share its message, so intervals over clients may be too narrow: small gains"
    " are given as not shown."
)


def write_statement(
    directory: Path,
    run: Run,
    evaluation: Evaluation,
    *,
    attacks: Sequence[Attack],
    recording: Recording,
    declared: Declaration,
    persons: bool = False,
) -> Path:
    """Writes statement.json and statement.html into the folder with the results.json of an audit; returns the page.

    Only with `persons` does it hold the numbers of the clients about whom most is inferred, and records of theirs.
    """
    evaluation = evaluation if persons else over_clients(evaluation)
    system = declared.system
    scope = _scope(recording, evaluation, run, system)
    questions = measured(
        *(as_recorded(run.results), evaluation, system),
        attacks=attacks,
        seed=run.seed,
        summed=scope.summed,
    )
    if not persons:
        questions = [one.model_copy(update={"worst_people": []}) for one in questions]
    manipulation = recording.manifest.config.get("manipulation")
    content: dict[str, Any] = {
        **{"scope": scope, "measured": questions, "declared": system},
        "combined": combined(questions, system),
        "assessment": assessment(system, questions),
        "privacy": privacy(as_recorded(run.results), evaluation, system, recording.manifest.releases),
        "sums": sums(evaluation),
        "not_tried": not_tried(evaluation, attacks, [one.estimate for one in questions], manipulation, scope.summed),
        "lowering": lowering(questions, audited=run),
        "gate": [verdict_in_words(one, attacks) for one in run.gate],
        "provenance": _provenance(directory, run, recording, declared),
        "limits": [*LIMITS, *([SHARED] if scope.summed > 1 else [])],
        "generated": GENERATED if "synthetic" in run.data["name"] else "",
        "terms": terms(),
    }
    statement = Statement(format=3, summary=_summary(content), **content)
    write_whole(directory / "statement.json", statement.content())
    page = directory / "statement.html"
    write_whole(page, html(statement).encode())
    return page


def _scope(recording: Recording, evaluation: Evaluation, run: Run, system: System) -> Scope:
    manifest = recording.manifest
    # Without a score, the clients are those that the server can tell apart.
    people = evaluation.scores.groupby("attack")["person"].nunique()
    active = any(line.active for line in evaluation.lines.values())
    behaviour = "deviates from the protocol (active)" if active else "follows the protocol (honest but curious)"
    readers = ", ".join(system.readers)
    shapes = {name: [int(size) for size in entry["shape"]] for name, entry in manifest.parameters.items()}
    sums = [{*map(tuple, recording.participants(number).values())} for number in recording.rounds]
    single = [len(recording.pseudonyms(number)) for number in recording.rounds]
    return Scope(
        data=run.data["name"],
        rounds=len(recording.rounds),
        messages=sum(len(own) or alone for own, alone in zip(sums, single, strict=True)),
        summed=max((sum(name >= 0 for name in one) for own in sums for one in own), default=1),
        clients=int(people.max()) if len(people) else len(recording.pseudonyms()),
        adversary=f"the server, which {behaviour}, or anyone else who can read what it receives ({readers})",
        active=active,
        learner=None if manifest.learner is None else str(manifest.learner["name"]),
        parameters=shapes,
        rows_only=list(manifest.row_parameters),
        releases=[dict(release) for release in manifest.releases],
        outside=[*system.outside, "parameters that clients keep or that are not listed here", "all other channels"],
    )


_OUTCOMES: Mapping[str, str] = {
    "ok": "Kept.",
    "failed": "Not kept.",
    "undecided": "Undecided: these clients do not show on which side of the limit {whom} are.",
    "unchecked": "Could not be checked, so it is not known to be kept.",
}
_COMPARED: Mapping[str, str] = {CHANGE: "in the reference", BEYOND_BASELINE: "the best baseline of its question"}
"""What the limits on differences compare an attack with."""


def verdict_in_words(entry: Mapping[str, Any], attacks: Sequence[Attack]) -> Verdict:
    """Verdict on a limit, in everyday words too."""
    limit = Limit.named(entry["metric"], float(entry["limit"]))
    about = ""
    if limit.question is not None:
        asked = [attack.estimates for attack in attacks if limit.applies(attack.family, attack.estimates.inferred)]
        # Bits and differences are measured on many questions, and are no metric of an estimate.
        measuring = [estimates for estimates in asked if limit.metric in estimates.metric_names()] or asked
        about = f" that infers {' or '.join(dict.fromkeys(estimates.inferred for estimates in measuring))}"
    if limit.is_relative:
        compared = _COMPARED[limit.metric]
        said = f"No attack{about} may infer more than {compared} by over {shown(limit.bound)}, in its metric."
    else:
        said = f"No attack{about} may be better than one that {value_in_words(limit.metric, limit.bound)}."
    whom = "clients like them" if entry["about"] == "clients" else "all clients of the recording"
    fields = {field: entry[field] for field in ("metric", "limit", "verdict", "message")}
    return Verdict(**fields, everyday=f"{said} {_OUTCOMES[entry['verdict']].format(whom=whom)}")


def _provenance(directory: Path, run: Run, recording: Recording, declared: Declaration) -> Provenance:
    manifest = recording.manifest
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(run, name) for name in ("command", "commit", "versions", "seed", "seconds", "hardware")},
        recording_sha256=recording.sha256(),
        recording_seed=manifest.seed,
        recording_commit=manifest.commit,
        system_sha256=declared.sha256,
        results_sha256=sha256_of(directory / "results.json"),
        data_sha256=run.data["sha256"],
    )


def terms() -> dict[str, str]:
    """Terms of a statement and their meanings, from docs/start/glossary.md."""
    lines = (PACKAGE / "reports" / "statement" / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ", 1)] for line in lines if line.startswith("| ")]
    meanings = {
        row[0]: re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row[1]).replace("`", "") for row in rows if len(row) == 2
    }
    return {name: meanings[name] for name in TERMS}


def _summary(content: dict[str, Any]) -> list[str]:
    """The statement in five sentences: scope, measured, combined, differential privacy, limits."""
    scope, system, questions = content["scope"], content["declared"], content["measured"]
    sentences = {one.estimate: one.sentence for one in content["combined"]}
    shown_leaks = [question for question in questions if question.answer in ("yes", "slightly")]
    exposed = [sentences[question.estimate] for question in shown_leaks if question.estimate in sentences]
    judged = exposed[0] if exposed else f"not computed, because {why_not_combined(shown_leaks)}."
    count = len(questions) + len(content["not_tried"].not_measured)
    others = len(content["not_tried"].does_not_apply)
    inapplicable = f" ({others} {'other does' if others == 1 else 'others do'} not apply to it)" if others else ""
    messages, rounds = _number(scope.messages, "message"), _number(scope.rounds, "round")
    sums = f", each a sum over up to {scope.summed} clients," if scope.summed > 1 else ""
    return [
        f"{system.system} {system.version}: fedleak attacked {messages}{sums} from {rounds} of a recording; results are"
        f" about up to {_number(scope.clients, 'client')}. The adversary is {scope.adversary}.",
        _answers(questions),
        f"Clients exposed: {judged}",
        content["privacy"].sentence,
        f"Measured: {len(questions)} of {count} questions that can be asked of this system{inapplicable}; the table has"
        " all of them. What was not measured may leak, and what was measured may leak more than was found: this is a"
        " lower bound, never a proof of anonymity.",
    ]


def _answers(questions: Sequence[Measured]) -> str:
    """The questions by their answers."""
    if not questions:
        return "No attack could be scored, which says nothing about the leak."
    starts = {
        "yes": "Can be inferred about a client: ",
        "slightly": "Can be inferred slightly better than without the updates, or than a baseline does: ",
        "not shown": "Not shown, by the attacks that ran: ",
        "few": f"Cannot be said, because fewer than {FEWEST} clients were measured: ",
        "cannot be said": "Cannot be said, because no baseline without the update ran: ",
    }
    answers = ["few" if one.n < FEWEST else one.answer for one in questions]
    asked = {
        start: [
            _with_words(one) if one is questions[0] and name in ("yes", "slightly") else one.infers
            for one, answer in zip(questions, answers, strict=True)
            if answer == name
        ]
        for name, start in starts.items()
    }
    return " ".join(f"{start}{'; '.join(own)}." for start, own in asked.items() if own)


def _with_words(one: Measured) -> str:
    """What the first question asks, with how well it is answered, and how well without the update."""
    result, baseline = value_in_words(one.metric, one.result.value), one.baseline
    start = one.guessing if baseline is None else baseline.result.value
    compared = "guessing" if baseline is None else "a control" if baseline.reads_update else "without the update"
    without = "" if start is None else f"; {compared}: {number_in_words(one.metric, start)}"
    return f"{one.infers} (the best attack {result}{without})"


def _number(count: int, what: str) -> str:
    return f"one {what}" if count == 1 else f"{shown(count, whole=True)} {what}s"
