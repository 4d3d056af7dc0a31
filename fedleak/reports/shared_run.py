"""What of the results of a run goes to others: numbers over clients, and no table about records, path or key."""

import dataclasses

from fedleak.core.provenance import published, without_paths
from fedleak.evaluation.reasons import Reason
from fedleak.evaluation.run import Run


def shared_run(run: Run) -> Run:
    """The run without attacks' own tables, which may name records or clients, and without paths, keys and addresses.

    Applied twice, it is applied once.
    """
    return dataclasses.replace(
        run,
        command=published(run.command),
        details={},
        not_run={name: _shared(reason) for name, reason in run.not_run.items()},
        unrelated={name: _shared(reason) for name, reason in run.unrelated.items()},
        learner_check=without_paths(run.learner_check),
    )


def _shared(reason: Reason) -> Reason:
    return dataclasses.replace(
        reason,
        lacks=tuple(map(without_paths, reason.lacks)),
        way_out=without_paths(reason.way_out),
        says=without_paths(reason.says),
    )
