"""What the limits of a gate are held against: results of an audit, and the attacks that it asked."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedleak.core.attack import Attack
from fedleak.evaluation.changes import Changes
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.limited_value import AttackInSetting
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import differing, records, setting_of


@dataclass(frozen=True)
class AuditedResults:
    """What limits are held against: see `gate` and `Gate`."""

    results: pd.DataFrame
    evaluation: Evaluation
    attacks: Sequence[Attack]
    changes_of: Callable[[Evaluation], Changes] | None
    recorded: int | None

    @functools.cached_property
    def differing_settings(self) -> set[str]:
        """Keys of the settings that differ between results."""
        if len(self.results):
            return differing(self.results)
        return set()

    def attacks_of(self, limit: Limit) -> list[Attack]:
        """The attacks that a limit is about."""
        return [attack for attack in self.attacks if limit.applies_to(attack)]

    def rows(self, limit: Limit) -> list[dict[str, Any]]:
        """Results that a limit is about, without baselines: of its metric, or of the metrics that judge attacks."""
        if self.results.empty:
            return []
        of_attacks = self.results[self.results["role"].isin(ATTACKS)]
        of_metric = is_judged(of_attacks) if limit.is_relative else of_attacks["metric"] == limit.metric
        rows = records(of_attacks[of_metric])
        return [row for row in rows if limit.applies(str(row["family"]), str(row["tells"]))]

    def recorded_for(self, limit: Limit) -> int | None:
        """Number of clients of the recording if the limit is about these; a difference is about clients like these."""
        if limit.is_relative:
            return None
        return self.recorded

    def attack_in_setting(self, row: Mapping[str, Any]) -> AttackInSetting:
        """Attack and setting of a row of results."""
        settings = setting_of(row)
        differing_here = {key: value for key, value in settings.items() if key in self.differing_settings}
        return AttackInSetting(str(row["attack"]), differing_here)
