"""The bar names the attack that runs, moves within a view, and leaves out what cannot run."""

import re
from pathlib import Path

import pytest
import torch

from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.re_identification.baselines import IdentityChance
from fedleak.attacks.re_identification.reidentification import CentredSVM
from fedleak.attacks.recommendation.imia import IMIA
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.core.progress import progress_listener, report_progress, with_progress
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from fedleak.evaluation import message_audit, round_audit
from fedleak.evaluation.attack_bar import AttackBar
from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.message_audit import attack_messages
from fedleak.modules.attackers.trainer import fit_quietly
from fedleak.recordings.recording import Recording
from tests.deanonymization_toys import joined
from tests.toys import Line, leaky_view, train


def test_it_moves_within_a_view_by_what_the_attack_says() -> None:
    with AttackBar({"slow": 10, "other": 4}, show=True) as bar:
        seen = []
        with bar.attacking("slow", 10):
            for _ in with_progress(range(4)):
                seen.append(bar.done)
        assert seen == [0, 2.5, 5, 7.5]
        with bar.attacking("other", 4):
            report_progress(0.5)
            assert bar.done == 12
            report_progress(0.25)  # a later part of the work that begins anew takes nothing back
            assert bar.done == 12
        assert (bar.done, bar.total) == (14, 14)
    report_progress(0.5)  # nobody hears


def test_what_cannot_run_is_no_work() -> None:
    with AttackBar({"a": 10, "b": 6}, show=True) as bar:
        with bar.attacking("b", 2):
            pass
        bar.leave_out("b")
        bar.leave_out("b")
        assert (bar.done, bar.total) == (2, 12)
        with bar.attacking("b", 1):  # a later round has what an earlier one lacked
            pass
        assert bar.done == 3


def test_at_80_columns_it_shows_the_attack_the_share_and_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda _: (80, 24))
    names = {f"attack-with-a-name-{number}": 1 for number in range(21)}
    with AttackBar(names, show=True) as bar:
        for name in names:
            with bar.attacking(name, 1, 12):
                pass
        bar._bar.refresh()
    last = re.split(r"[\r\n]+", capsys.readouterr().err.strip())[-1]
    assert len(last) <= 80
    assert re.match(r"100%\|.{10,}\| \d\d:\d\d<\d\d:\d\d, attack-with-a-name-20 round 12", last)


def test_time_left_is_that_of_each_attack_as_measured_or_declared() -> None:
    with AttackBar({"fast": 100, "slow": 10}, {"fast": "milliseconds per victim", "slow": "hours"}, show=True) as bar:
        assert bar.seconds_left() is None  # no time is known of one
        with bar.attacking("fast", 50):
            pass
        bar.took("fast", 0.1)
        assert bar.seconds_left() == pytest.approx(50 * 0.1 + 10 * 0.1)
        bar.took("slow", 7.0)
        assert bar.seconds_left() == pytest.approx(50 * 0.1 + 10 * 7)
        bar.leave_out("slow")
        assert bar.seconds_left() == pytest.approx(50 * 0.1)


def test_time_left_is_declared_before_an_attack_has_run() -> None:
    with AttackBar({"a": 100, "b": 10}, {"a": "milliseconds per victim", "b": "minutes per victim"}, show=True) as bar:
        assert bar.seconds_left() == pytest.approx(100 * 0.005 + 10 * 120)


def test_slow_attacks_say_how_far_they_are() -> None:
    shares: list[float] = []
    with progress_listener(shares.append):
        IMIA(confirmed=0.3)(leaky_view(4)[0], generator=torch.Generator().manual_seed(0))
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.integration
@pytest.mark.parametrize("limit", [{"max_steps": 4}, {"max_epochs": 2}], ids=str)
def test_a_learned_attack_says_how_far_its_training_is(limit: dict[str, int]) -> None:
    shares: list[float] = []
    with progress_listener(shares.append):
        fit_quietly(Line(), accelerator="cpu", **limit)
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0])


class Half(Direction):
    """Looks at the bar from within."""

    name = "half"
    threat_model = ThreatModel(sees="", knows="", needs=Direction.threat_model.needs)
    bars: list[AttackBar]
    seen: list[float]

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        report_progress(0.5)
        self.seen.append(self.bars[0].done)
        return super().run(view, generator=generator)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[AttackBar]:
    """The bars that an evaluation shows."""
    shown: list[AttackBar] = []

    class Watched(AttackBar):
        def __enter__(self) -> AttackBar:
            shown.append(self)
            return super().__enter__()

    for module in (round_audit, message_audit):
        monkeypatch.setattr(module, "AttackBar", Watched)
    return shown


@pytest.mark.integration
def test_an_evaluation_ticks_by_attack_and_view(tmp_path: Path, bars: list[AttackBar]) -> None:
    train(tmp_path, rounds=2, users=8, items=40)
    attack = Half()
    attack.bars, attack.seen = bars, []
    plan = AuditPlan(
        recording=Recording(tmp_path / "deltas"),
        attacks=[Direction(), attack, Decaf()],
        setting={"data": "d"},
        limits={"direction": 2},
        slow="all",
        victims_per_view=4,
    )
    evaluate_recording(plan)
    # Two rounds of two views of four; direction takes two victims; Decaf cannot run and counts for nothing.
    assert (bars[0].done, bars[0].total) == (20, 20)
    assert len(attack.seen) == 4
    assert attack.seen == sorted(attack.seen)
    assert attack.seen[-1] in (16, 18)  # the faster one of a view comes first


@pytest.mark.integration
def test_attacks_on_anonymity_have_a_bar(tmp_path: Path, bars: list[AttackBar]) -> None:
    train(tmp_path, rounds=1, users=8, items=40)
    view, users = joined(rounds=3)
    assert view.known is not None
    truth = {"user": users[: view.victims], "known_user": users[view.victims :]}
    attacks = [IdentityChance(), CentredSVM()]
    plan = AuditPlan(recording=Recording(tmp_path / "deltas"), attacks=attacks, setting={"data": "d"})
    attack_messages(plan, Execution(), view, truth, attacks)
    assert (bars[0].done, bars[0].total) == (2 * view.victims, 2 * view.victims)
