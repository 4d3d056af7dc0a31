from fedleak import server
from fedleak.attacks.record_membership.baselines import SentModelLoss
from fedleak.core.class_paths import classes_in
from fedleak.core.taxonomy import RECONSTRUCTION
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.time_budget import TimeBudget
from fedleak.reports.statement.gaps import KNOWN_CLASSES, not_tried
from fedleak.server.model_manipulation import ModelManipulation
from tests.places import ROOT
from tests.wording import lacking

SLOW = Reason("slow", says="it is slow")
NO_LEARNER = Reason("misfit", says="no learner")


def test_gaps_are_named_with_what_was_lacking() -> None:
    attacks = [kind() for kind in REGISTRY.values()]
    evaluation = Evaluation(missing={"recommendation/raifle": SLOW}, unrelated={"decaf": NO_LEARNER})
    found = not_tried(evaluation, attacks)
    assert [(one.question, one.attacks, one.reason) for one in found.could_not_run] == [
        ("recommendation", ["raifle"], "it is slow")
    ]
    assert [(one.question, one.attacks) for one in found.other_questions] == [("composition", ["decaf"])]


def test_a_class_that_the_project_has_is_no_gap() -> None:
    families = {kind.family for kind in REGISTRY.values()}
    found = not_tried(Evaluation(), [kind() for kind in REGISTRY.values()])
    assert set(found.without_attack) == set(KNOWN_CLASSES) - families - {"manipulated-model"}
    assert found.without_attack


def test_every_question_without_a_result_has_a_reason() -> None:
    attacks = [kind() for kind in REGISTRY.values()]
    evaluation = Evaluation(missing={"recommendation/raifle": SLOW}, unrelated={"decaf": NO_LEARNER})
    found = not_tried(evaluation, attacks, ["InteractionEstimate"], summed=10)
    asked = {kind.estimates.question(): kind for kind in attacks if not kind.baseline and kind.estimates.truth}
    open_ones = {kind.estimates.inferred for name, kind in asked.items() if name != "InteractionEstimate"}
    open_ones -= {kind.estimates.inferred for kind in attacks if kind.family == "declared-privacy"}
    without = set(KNOWN_CLASSES) - {kind.family for kind in attacks}
    infers = [one.infers for one in found.not_measured]
    assert len(infers) == len(set(infers)) == len(open_ones) + len(without)
    assert found.does_not_apply == []
    by_question = {one.question: one for one in found.not_measured}
    assert without <= set(by_question)
    assert "which of the items it was shown the client interacted with" not in infers
    assert by_question["composition"].reasons in (["no learner"], ["no attack gave a value"])
    assert ["no learner"] in [one.reasons for one in found.not_measured if one.question == "composition"]
    assert "no attack" in by_question["eavesdropping"].summary
    assert by_question["attributes"].summary == "no attack gave a value"


def test_the_reason_of_a_question_is_that_of_the_attack_which_lacks_least_in_plain_words() -> None:
    reasons = {
        "decaf": Reason("slow", way_out="add --slow", says="it is slow (minutes per victim)"),
        "direction": Reason("other-clients", ("x",), says="the clients' algorithm is SomeAlgorithm"),
        "ranking/raifle": Reason("lacking", ("the items that the server showed", "y"), "give it"),
        "images/raifle": Reason("lacking", ("the items that the server showed",), "give it"),
        "attribute-lda": Reason("unscored", ("attributes",), "add it"),
        "pac": Reason("misfit", says="expected layer fc2.weight, got none"),
    }
    found = not_tried(Evaluation(unrelated=reasons), [kind() for kind in REGISTRY.values()]).not_measured
    summaries = {one.infers: one.summary for one in found}
    assert not lacking(summaries["what share of its examples each class has"], "slow", "left out")
    interactions = summaries["which of the items it was shown the client interacted with"]
    assert not lacking(interactions, "recording lacks", "items", "showed")
    (recommends,) = [one for one in found if "recommendation" in one.question]
    assert "it needs x; the clients' algorithm is SomeAlgorithm" in recommends.reasons
    attributes = summaries["attributes of the person, such as gender or age, that its data do not name"]
    assert not lacking(attributes, "recording", "not hold", "true answers")
    vector = summaries["the client's private vector, which predicts what it likes"]
    assert "fc2" not in vector
    assert "section 6" in vector


def test_a_question_that_no_attack_could_be_asked_does_not_apply() -> None:
    attacks = [kind() for kind in REGISTRY.values()]
    reason = Reason("inapplicable", says="there are no items")
    asking = [one for one in attacks if one.estimates.question() == "InteractionEstimate" and not one.baseline]
    missing = {f"{one.family}/{one.name}": reason for one in asking}
    found = not_tried(Evaluation(unrelated=missing), attacks)
    (interactions,) = [one for one in found.does_not_apply if "recommendation" in one.question]
    assert interactions.reason == "there are no items"
    assert interactions.infers not in {one.infers for one in found.not_measured}
    missing[f"{asking[0].family}/{asking[0].name}"] = SLOW
    measurable = not_tried(Evaluation(unrelated=missing), attacks)
    assert interactions.infers in {one.infers for one in measurable.not_measured}


def test_what_colluding_clients_add_is_a_question_about_sums() -> None:
    alone, summed = (not_tried(Evaluation(), [], summed=clients) for clients in (1, 10))
    assert "collusion" in {one.question for one in alone.does_not_apply}
    assert "collusion" in {one.question for one in summed.not_measured}


def test_models_made_to_leak_are_counted_and_not_called_unknown() -> None:
    """The package of servers has them; a recording that declares one measured them with the other questions."""
    names = [kind.name for kind in classes_in(server, ModelManipulation) if hasattr(kind, "name")]
    assert {"imprint", "trap-weights", "soliton", "suppression"} <= set(names)
    honest = {one.question: one for one in not_tried(Evaluation(), []).not_measured}["manipulated-model"]
    assert honest.summary.startswith("the recorded server sent no such model.")
    assert f"{len(names)} ways to make one" in honest.summary
    assert "no attack" not in honest.summary
    made = not_tried(Evaluation(), [], manipulation="imprint")
    assert "manipulated-model" not in {one.question for one in made.not_measured}
    # The largest share that the sentence speaks of stands in the page with the measurements.
    rows = (ROOT / "docs" / "theory" / "cheating-servers.md").read_text(encoding="utf-8").splitlines()
    assert any(row.startswith("| soliton") and "1.000" in row for row in rows)


def test_the_baseline_that_reads_global_models_alone_is_said() -> None:
    found = {one.question: one for one in not_tried(Evaluation(), [SentModelLoss()]).not_measured}
    assert "only a baseline" in found["participants"].summary
    assert not lacking(found["eavesdropping"].summary, "no attack")


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


def test_clients_of_another_kind_are_described_without_the_name_of_their_class() -> None:
    learner = "the clients' algorithm is FNCFAlgorithm, no MFAlgorithm"
    reason = Reason("other-clients", ("clients that factorise a matrix",), says=learner)
    attacks = [kind() for kind in REGISTRY.values() if kind.family == "identifiability"]
    evaluation = Evaluation(unrelated={f"{one.family}/{one.name}": reason for one in attacks})
    (vector,) = [one for one in not_tried(evaluation, attacks).not_measured if one.question == "identifiability"]
    assert not lacking(vector.summary, "need clients", "factorise a matrix")
    assert [lacking(reason, "factorise a matrix", str(learner)) for reason in vector.reasons] == [[]]


def test_want_of_time_is_a_reason_in_plain_words() -> None:
    attacks = [kind() for kind in REGISTRY.values() if kind.family == "linkability"]
    late = TimeBudget(30).reason(3394.0, "seconds per victim")
    missing = {one.name: late for one in attacks if not one.baseline}
    gaps = not_tried(Evaluation(missing=missing), attacks).not_measured
    (links,) = [one for one in gaps if one.reasons == [str(late)]]
    assert not lacking(links.summary, "time", "not enough")
