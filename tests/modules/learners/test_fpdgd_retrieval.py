"""Private retrieval: who got the planted document is recorded as truth only, and the mark's feature gives it away."""

import math
from pathlib import Path

import pytest
import torch

from fedleak.attacks.membership import RetrievalFingerprint
from fedleak.core.errors import InputError, ViewError
from fedleak.defenses.local_dp import LocalDP
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.recordings.recording import Recording
from fedleak.server.marked_document import MarkedDocument, marked_feature
from tests.ranking_toys import ranker, record, source


def recorded(folder: Path, hidden: int = 0, epsilon: float = math.inf) -> Recording:
    defenses = [LocalDP(clip=0.25, epsilon=epsilon, delta=1e-8)] if math.isfinite(epsilon) else []
    data = source(users=60, private_retrieval=True)
    module = ranker(data, hidden=hidden, defenses=defenses, manipulation=MarkedDocument(), ranker_per_client=True)
    return record(folder, data, module, rounds=data.rounds or 0)


def means(recording: Recording) -> dict[str, float]:
    plan = AuditPlan(
        recording=recording, attacks=[RetrievalFingerprint()], setting={}, slow="all", victims_per_view=1000
    )
    found = evaluate_recording(plan, Execution(progress=False))
    return {str(name): float(values) for name, values in found.scores.groupby("metric")["value"].mean().items()}


def test_half_of_a_round_hold_a_document_that_only_the_mark_gives_away() -> None:
    data = source(private_retrieval=True)
    module = ranker(data, manipulation=MarkedDocument())
    before = data.cohort(0)
    holder = before.examples["holder"]
    assert int(holder[:, 0].sum()) == len(before) // 2
    assert torch.equal(holder, holder[:, :1].expand_as(holder))
    assert not (data.read_train().features == data.planted_document.numpy()).all(1).any()
    cohort = module.interact(before, module.public_parameters())
    marked = cohort.examples["features"][..., marked_feature(module.public_parameters())] != 0
    assert torch.equal(marked.flatten(1).sum(1), holder[:, 0].long())
    honest = ranker(data).interact(before, module.public_parameters()).examples
    planted = (honest["features"] == data.planted_document).all(-1)
    assert torch.equal(planted, marked)
    assert torch.equal(honest["click"], cohort.examples["click"])


@pytest.mark.integration
@pytest.mark.parametrize("hidden", [0, 3])
def test_the_recording_says_nothing_of_documents_and_the_update_says_who(tmp_path: Path, hidden: int) -> None:
    recording = recorded(tmp_path, hidden)
    assert (recording.rounds, recording.manifest.config["manipulation"]) == ([0, 1, 2, 3], "mark")
    (view, *_) = recording.views(victims_per_view=1000)
    assert (view.served, view.features, view.lists) == (None, None, None)
    assert recording.truth(view).keys() == {"clients", "member"}
    found = means(recording)
    assert found["fpr"] == 0
    assert found["tpr"] > (0.6 if hidden else 0.9)
    assert found["auc"] > 0.8


@pytest.mark.integration
def test_weak_noise_is_seen_through_and_strong_noise_is_not(tmp_path: Path) -> None:
    assert means(recorded(tmp_path / "weak", epsilon=500))["auc"] > 0.85
    assert abs(means(recorded(tmp_path / "strong", epsilon=1))["auc"] - 0.5) < 0.2


def test_without_a_document_there_is_nothing_to_mark() -> None:
    data = source()
    module = ranker(data, manipulation=MarkedDocument())
    with pytest.raises(ViewError, match="private_retrieval"):
        module.interact(data.cohort(0), module.public_parameters())


def test_a_set_whose_test_documents_are_all_known_is_refused() -> None:
    data = source(private_retrieval=True)
    data.read_test = data.read_train  # type: ignore[method-assign]
    with pytest.raises(InputError, match="unlike"):
        data.cohort(0)


def test_the_mark_is_where_scores_hardly_change() -> None:
    assert marked_feature({"ranker.weight": torch.tensor([0.5, -0.01, 0.2])}) == 1
    hidden = torch.tensor([[-1.0, 1.0, 1.0], [-1.0, 1.0, 0.1]])
    assert marked_feature({"hidden.weight": hidden, "output.weight": torch.tensor([1.0, -1.0])}) == 1
