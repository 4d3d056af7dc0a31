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
from fedleak.reports.statement.content import Provenance, Scope, Statement, Verdict
from fedleak.reports.statement.gaps import not_tried
from fedleak.reports.statement.lowering import lowering
from fedleak.reports.statement.measured import measured
from fedleak.reports.statement.measured_content import Measured
from fedleak.reports.statement.numbers import Number, shown
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
    "attack",
    "auxiliary data",
    "baseline",
    "bits",
    "client",
    "clients exposed",
    "epsilon",
    "ground truth",
    "honest but curious",
    "interval",
    "person",
    "prior",
    "recording",
    "round",
    "secure aggregation",
    "server",
    "update",
    "worst tenth",
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
    if not persons:
        evaluation = over_clients(evaluation)
    system = declared.system
    scope = _scope(recording, evaluation, run, system)
    # A statement is about the recorded updates, not about those that a defence would have changed.
    results = as_recorded(run.results)
    questions = measured(
        results,
        evaluation,
        system,
        attacks=attacks,
        seed=run.seed,
        summed=scope.summed,
    )
    if not persons:
        questions = [question.model_copy(update={"worst_people": []}) for question in questions]
    gaps = not_tried(
        evaluation,
        attacks,
        measured=[question.estimate for question in questions],
        manipulation=recording.manifest.config.get("manipulation"),
        summed=scope.summed,
    )
    limits = list(LIMITS)
    if scope.summed > 1:
        limits.append(SHARED)
    content: dict[str, Any] = {
        "scope": scope,
        "measured": questions,
        "declared": system,
        "combined": combined(questions, system),
        "assessment": assessment(system, questions),
        "privacy": privacy(results, evaluation, system, recording.manifest.releases),
        "sums": sums(evaluation),
        "not_tried": gaps,
        "lowering": lowering(questions, audited=run),
        "gate": [verdict_in_words(verdict, attacks) for verdict in run.gate],
        "provenance": _provenance(directory, run, recording, declared),
        "limits": limits,
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
    active = any(info.active for info in evaluation.lines.values())
    behaviour = "deviates from the protocol (active)" if active else "follows the protocol (honest but curious)"
    readers = ", ".join(system.readers)
    # Clients of one sum have equal lists of participants, filled up with -1 to one length; without sums, each client
    # sends a message.
    messages = 0
    sizes: list[int] = []
    for number in recording.rounds:
        sums_of_round = {tuple(participants) for participants in recording.participants(number).values()}
        messages += len(sums_of_round) or len(recording.pseudonyms(number))
        sizes += [sum(pseudonym >= 0 for pseudonym in participants) for participants in sums_of_round]
    return Scope(
        data=run.data["name"],
        rounds=len(recording.rounds),
        messages=messages,
        summed=max(sizes, default=1),
        clients=int(people.max()) if len(people) else len(recording.pseudonyms()),
        adversary=f"the server, which {behaviour}, or anyone else who can read what it receives ({readers})",
        active=active,
        learner=None if manifest.learner is None else str(manifest.learner["name"]),
        parameters={name: list(map(int, parameter["shape"])) for name, parameter in manifest.parameters.items()},
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
        estimates = [attack.estimates for attack in attacks if limit.applies(attack.family, attack.estimates.inferred)]
        # Bits and differences are measured on many questions, and are no metric of an estimate.
        measuring = [estimate for estimate in estimates if limit.metric in estimate.metric_names()] or estimates
        inferred = dict.fromkeys(estimate.inferred for estimate in measuring)
        about = f" that infers {' or '.join(inferred)}"
    if limit.is_relative:
        compared = _COMPARED[limit.metric]
        sentence = f"No attack{about} may infer more than {compared} by over {shown(limit.bound)}, in its metric."
    else:
        sentence = f"No attack{about} may be better than one that {value_in_words(limit.metric, limit.bound)}."
    whom = "clients like them" if entry["about"] == "clients" else "all clients of the recording"
    outcome = _OUTCOMES[entry["verdict"]].format(whom=whom)
    return Verdict(
        metric=entry["metric"],
        limit=entry["limit"],
        verdict=entry["verdict"],
        message=entry["message"],
        everyday=f"{sentence} {outcome}",
    )


def _provenance(directory: Path, run: Run, recording: Recording, declared: Declaration) -> Provenance:
    manifest = recording.manifest
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=run.command,
        commit=run.commit,
        versions=run.versions,
        seed=run.seed,
        seconds=run.seconds,
        hardware=run.hardware,
        recording_sha256=recording.sha256(),
        recording_seed=manifest.seed,
        recording_commit=manifest.commit,
        system_sha256=declared.sha256,
        results_sha256=sha256_of(directory / "results.json"),
        data_sha256=run.data["sha256"],
    )


def terms() -> dict[str, str]:
    """Terms of a statement and their meanings, from docs/start/glossary.md."""
    glossary = (PACKAGE / "reports" / "statement" / "glossary.md").read_text(encoding="utf-8")
    meanings = {}
    for line in glossary.splitlines():
        if line.startswith("| ") and " | " in line.strip("| "):
            term, meaning = line.strip("| ").split(" | ", 1)
            # Without the markup of links and code.
            without_links = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning.strip())
            meanings[term.strip()] = without_links.replace("`", "")
    return {name: meanings[name] for name in TERMS}


def _summary(content: dict[str, Any]) -> list[str]:
    """The statement in five sentences: scope, measured, combined, differential privacy, limits."""
    scope = content["scope"]
    system = content["declared"]
    questions = content["measured"]
    attacked = _number(scope.messages, "message")
    if scope.summed > 1:
        attacked += f", each a sum over up to {scope.summed} clients,"
    # Clients exposed are those of the largest leak that is shown and has rates and a declared prior.
    sentences = {combination.estimate: combination.sentence for combination in content["combined"]}
    shown_leaks = [question for question in questions if question.answer in ("yes", "slightly")]
    exposed = [sentences[question.estimate] for question in shown_leaks if question.estimate in sentences]
    if not exposed:
        exposed = [f"not computed, because {why_not_combined(shown_leaks)}."]
    # Questions that can be asked are those measured and those that were not; the others do not apply.
    count = len(questions) + len(content["not_tried"].not_measured)
    inapplicable_count = len(content["not_tried"].does_not_apply)
    inapplicable = ""
    if inapplicable_count == 1:
        inapplicable = " (1 other does not apply to it)"
    elif inapplicable_count > 1:
        inapplicable = f" ({inapplicable_count} others do not apply to it)"
    return [
        f"{system.system} {system.version}: fedleak attacked {attacked} from {_number(scope.rounds, 'round')} of a"
        f" recording; results are about up to {_number(scope.clients, 'client')}. The adversary is {scope.adversary}.",
        _answers(questions),
        f"Clients exposed: {exposed[0]}",
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
    inferred: dict[str, list[str]] = {answer: [] for answer in starts}
    for position, question in enumerate(questions):
        answer: str = "few" if question.n < FEWEST else question.answer
        # Only the first question, of the largest leak, has its numbers here.
        if position == 0 and answer in ("yes", "slightly"):
            inferred[answer].append(_with_words(question))
        else:
            inferred[answer].append(question.infers)
    return " ".join(f"{starts[answer]}{'; '.join(texts)}." for answer, texts in inferred.items() if texts)


def _with_words(question: Measured) -> str:
    """What the first question asks, with how well it is answered, and how well without the update."""
    words = f"the best attack {value_in_words(question.metric, question.result.value)}"
    baseline = question.baseline
    start: Number = question.guessing
    compared = "guessing"
    if baseline is not None:
        start = baseline.result.value
        compared = "a control" if baseline.reads_update else "without the update"
    if start is not None:
        words += f"; {compared}: {number_in_words(question.metric, start)}"
    return f"{question.infers} ({words})"


def _number(count: int, what: str) -> str:
    if count == 1:
        return f"one {what}"
    return f"{shown(count, whole=True)} {what}s"
