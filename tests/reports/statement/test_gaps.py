from attacks.registry import REGISTRY
from evaluation.runner import Evaluation
from protocol.taxonomy import RECONSTRUCTION
from reports.statement.gaps import KNOWN_CLASSES, not_tried


def test_gaps_are_named_with_what_was_lacking() -> None:
    attacks = [kind() for kind in REGISTRY.values()]
    evaluation = Evaluation(missing={"recommendation/raifle": "it is slow"}, unrelated={"decaf": "no learner"})
    found = not_tried(evaluation, attacks)
    assert [(one.question, one.attacks, one.reason) for one in found.could_not_run] == [
        ("recommendation", ["raifle"], "it is slow")
    ]
    assert [(one.question, one.attacks) for one in found.other_questions] == [("composition", ["decaf"])]


def test_a_class_that_the_project_has_is_no_gap() -> None:
    families = {kind.family for kind in REGISTRY.values()}
    found = not_tried(Evaluation(), [kind() for kind in REGISTRY.values()])
    assert set(found.without_attack) == set(KNOWN_CLASSES) - families
    assert found.without_attack


def test_every_question_without_a_result_has_a_reason() -> None:
    attacks = [kind() for kind in REGISTRY.values()]
    evaluation = Evaluation(missing={"recommendation/raifle": "it is slow"}, unrelated={"decaf": "no learner"})
    found = not_tried(evaluation, attacks, ["InteractionEstimate"]).not_measured
    asked = {kind.estimates.question(): kind for kind in attacks if not kind.baseline and kind.estimates.truth}
    open_ones = {kind.estimates.inferred for name, kind in asked.items() if name != "InteractionEstimate"}
    open_ones -= {kind.estimates.inferred for kind in attacks if kind.family == "declared-privacy"}
    without = set(KNOWN_CLASSES) - {kind.family for kind in attacks}
    infers = [one.infers for one in found]
    assert len(infers) == len(set(infers)) == len(open_ones) + len(without)
    by_question = {one.question: one for one in found}
    assert without <= set(by_question)
    assert "which of the items it was shown the client interacted with" not in infers
    assert by_question["composition"].reasons in (["no learner"], ["no attack gave a value"])
    assert ["no learner"] in [one.reasons for one in found if one.question == "composition"]
    assert "no attack" in by_question["eavesdropping"].summary
    assert by_question["attributes"].summary == "no attack gave a value"


def test_reason_of_a_question_is_short_and_plain() -> None:
    reasons = {
        "decaf": "it is slow (minutes per victim); add --slow",
        "direction": "it needs x; the clients' algorithm is y",
        "ranking/raifle": "the recording lacks served; give it",
        "attribute-lda": "without attributes in truth/ of the recording it cannot be scored; add it",
    }
    found = not_tried(Evaluation(unrelated=reasons), [kind() for kind in REGISTRY.values()]).not_measured
    summaries = {one.infers: one.summary for one in found}
    assert summaries["what share of its examples each class has"] == "the attacks on it are slow and were left out"
    interactions = summaries["which of the items it was shown the client interacted with"]
    assert interactions == "it needs x, or the recording lacks served"
    assert "the recording lacks the truth about it" in summaries.values()


def test_largest_gaps_are_named() -> None:
    found = not_tried(Evaluation(), [kind() for kind in REGISTRY.values()])
    names = {one.question: one.names for one in found.not_measured}
    assert {"manipulated-model", "sums-over-rounds"} <= set(KNOWN_CLASSES) & set(names)
    made = names["manipulated-model"]
    assert (made.nist, made.atlas, made.letter) == (RECONSTRUCTION.nist, RECONSTRUCTION.atlas, "F")
    sums = names["sums-over-rounds"]
    assert (sums.nist, sums.atlas, sums.aisvs) == (None, None, None)
    assert names["recommendation, ranking, images"].letter == "B, C"


def test_a_deviation_that_the_recording_declares_is_no_gap() -> None:
    honest, manipulated = (
        {one.deviation: one.letter for one in not_tried(Evaluation(), [], manipulation=name).deviations}
        for name in (None, "codebook")
    )
    assert honest.items() - manipulated.items() == {("Codebook", "F")}
    assert honest["RepeatedSelection"] == "H"
