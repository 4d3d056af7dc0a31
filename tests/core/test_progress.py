"""Progress of parts of parts of the work is a share of the whole."""

from fedleak.core.progress import progress_listener, progress_part, report_progress, with_progress


def test_what_a_part_reports_is_a_share_of_that_part() -> None:
    shares = list[float]()
    with progress_listener(shares.append):
        for _ in with_progress(range(2)):
            report_progress(0.5)
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_parts_nest() -> None:
    shares = list[float]()
    with progress_listener(shares.append):
        with progress_part(0.0, 0.5):
            for _ in with_progress([1, 2]):
                pass
        with progress_part(0.5, 1.0):
            report_progress(0.5)
    assert shares == [0.25, 0.5, 0.5, 0.75, 1.0]


def test_a_part_that_is_left_early_reports_nothing_of_the_next_work() -> None:
    shares = list[float]()
    with progress_listener(shares.append):
        for _ in with_progress([1, 2]):
            break
        report_progress(1.0)
    assert shares == [1.0]


def test_an_attack_within_an_attack_has_a_whole_of_its_own() -> None:
    outer, inner = list[float](), list[float]()
    with progress_listener(outer.append), progress_part(0.5, 1.0), progress_listener(inner.append):
        report_progress(0.5)
    assert inner == [0.5]
    assert outer == [1.0]
