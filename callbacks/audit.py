"""Audit of a training: attacks on its recording after the last round, or after every validation."""

import dataclasses
import functools
from pathlib import Path

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import run_audit
from fedleak.evaluation.reasons import nothing_scored
from fedleak.evaluation.registry import make_attack
from fedleak.recordings.recording import Recording
from fedleak.reports.leak_numbers import leaks
from fedleak.reports.wandb_log import log_results
from fedleak.reports.write_run import write_run


class Audit(Callback):
    """Attacks all recorded rounds at the end of the training, as ``fedleak audit`` would, and logs what leaked.

    It writes ``results.json``, ``scores.csv`` and ``report.html`` into the run's folder and logs
    ``audit/ATTACK/METRIC`` to every logger, and a table and the figures to Weights & Biases, so a sweep logs leakage
    next to utility. A requeued run is audited only at its final end. Rank zero runs the attacks; the other ranks do not
    wait for it.

    Args:
        attacks: attacks to run, by name in ``fedleak list --all`` or class path.
        victims: number of victims, drawn at random; None for all.
        each_validation: whether to attack the newest recorded round after every validation too, and log the numbers.
        seed: seed of the attacks' draws.
        persons: whether the files hold pseudonyms and client numbers, see `fedleak.evaluation.persons`.
    """

    def __init__(
        self,
        *,
        attacks: list[Attack | str],
        victims: int | None = None,
        each_validation: bool = False,
        seed: int = 0,
        persons: bool = False,
    ) -> None:
        if not attacks:
            way_out = "Give them as in configs/trainer/audit_recommender.yaml, or leave Audit out of callbacks."
            raise InputError(expected="attacks to audit the training by", found="none", way_out=way_out)
        self.attacks = [make_attack(attack) for attack in attacks]
        self.victims = victims
        self.each_validation = each_validation
        self.seed = seed
        self.persons = persons

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Checks that there is a `DeltaRecorder`."""
        self._recorder(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attacks the newest recorded round."""
        if not self.each_validation or trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING:
            return
        recording = self._recording(trainer)
        if recording is not None:
            plan = dataclasses.replace(self._plan(recording), rounds=recording.rounds[-1:], describe=False)
            results = run_audit(plan, progress=False).results
            self._log(trainer, leaks(results))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attacks the whole recording and writes the report."""
        recording = self._recording(trainer)
        if recording is None:
            return
        audit = run_audit(self._plan(recording))
        if not {*audit.scores["attack"]} & {*audit.evaluation.lines}:
            # An empty report would replace an earlier one.
            missing = audit.evaluation.unrelated | audit.missing
            rank_zero_warn(f"Audit writes no report: {nothing_scored(missing, self.attacks)}")
            return
        directory = Path(trainer.default_root_dir)
        shows = []
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                shows.append(functools.partial(log_results, logger.experiment))
        run = write_run(audit, directory=directory, shows=shows, persons=self.persons)
        self._log(trainer, leaks(run.results))

    def _plan(self, recording: Recording) -> AuditPlan:
        """Plan of the audit of all recorded rounds."""
        return AuditPlan(recording=recording, attacks=self.attacks, seed=self.seed, victims=self.victims, slow="all")

    def _recording(self, trainer: Trainer) -> Recording | None:
        """Recording after all ranks have written their shards; None except on rank zero."""
        recorder = self._recorder(trainer)
        recorder.wait()
        trainer.strategy.barrier("recorded")
        if trainer.is_global_zero:
            return Recording(recorder.folder(trainer), running=True)
        return None

    def _recorder(self, trainer: Trainer) -> DeltaRecorder:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, DeltaRecorder):
                return callback
        way_out = "Add fedleak.callbacks.delta_recorder.DeltaRecorder, whose recording Audit attacks."
        raise InputError(expected="a DeltaRecorder among the callbacks", found="Audit without one", way_out=way_out)

    def _log(self, trainer: Trainer, numbers: dict[str, float]) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(numbers, step=trainer.global_step)
