from attacks.registry import REGISTRY
from evaluation.runner import Evaluation
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
