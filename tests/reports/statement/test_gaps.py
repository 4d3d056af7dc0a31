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
    found = not_tried(evaluation, attacks, ["recommendation"]).not_measured
    families = {kind.family for kind in REGISTRY.values() if not kind.baseline} | set(KNOWN_CLASSES)
    assert set(found) == families - {"recommendation", "declared-privacy"}
    assert found["composition"] == "no learner"
    assert "no attack" in found["eavesdropping"]
    assert found["words"] == "no attack gave a value"


def test_largest_gaps_are_named() -> None:
    found = not_tried(Evaluation(), [kind() for kind in REGISTRY.values()])
    assert {"manipulated-model", "sums-over-rounds"} <= set(KNOWN_CLASSES) & set(found.not_measured)
    assert set(found.names) == set(found.not_measured)
    made = found.names["manipulated-model"]
    assert (made.nist, made.atlas, made.letter) == (RECONSTRUCTION.nist, RECONSTRUCTION.atlas, "F")
    sums = found.names["sums-over-rounds"]
    assert (sums.nist, sums.atlas, sums.aisvs, sums.letter) == (None, None, None, "A, D")
    assert found.names["recommendation"].letter == "B, C"


def test_a_deviation_that_the_recording_declares_is_no_gap() -> None:
    honest, manipulated = (
        {one.deviation: one.letter for one in not_tried(Evaluation(), [], manipulation=name).deviations}
        for name in (None, "codebook")
    )
    assert honest.items() - manipulated.items() == {("Codebook", "F")}
    assert honest["RepeatedSelection"] == "H"
