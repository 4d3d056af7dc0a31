"""A small federation of rankers on generated queries, and what its server sees of the first round."""

from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch.callbacks import Callback

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.modules.learners.online_ranker import OnlineRanker
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak.training.federated import FederatedModule
from tests.toys import quiet_trainer


def source(queries_per_client: int = 4, **options: object) -> SyntheticRanking:
    return SyntheticRanking(
        shape="letor",
        queries=60,
        test_queries=10,
        fewest_documents=2,
        most_documents=30,
        queries_per_client=queries_per_client,
        **options,
    )


def ranker(data: SyntheticRanking, **options: object) -> FPDGD:
    return FPDGD(
        num_features=data.num_features,
        num_grades=data.num_grades,
        grade_law=data.grade_law,
        **options,  # type: ignore[arg-type]
    )


def record(
    folder: Path,
    data: SyntheticRanking,
    module: FederatedModule,
    rounds: int = 1,
    parameters: list[str] | None = None,
    more: Sequence[Callback] = (),
) -> Recording:
    quiet_trainer(rounds, folder, DeltaRecorder(parameters=parameters), *more).fit(module, datamodule=data)
    return Recording(folder / "deltas")


def first_view(recording: Recording) -> RoundView:
    learner = learner_from(recording.manifest.learner)
    return next(recording.views(victims_per_view=1000, learner=learner))


def ndcg(module: OnlineRanker, data: SyntheticRanking) -> float:
    """Mean quality of the lists of the test queries."""
    module.on_validation_epoch_start()
    module.ndcg.reset()
    for batch in data.val_dataloader():
        module.update_metrics(batch)
    return float(module.ndcg.compute())
