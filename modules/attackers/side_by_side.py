"""Parts of an attack side by side in threads, with one progress."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from fedleak.core.progress import progress_listener, report_progress

_Part = TypeVar("_Part")


class _StoppedError(BaseException):
    """Ends a part because the attack was stopped."""


def side_by_side(work: Callable[[_Part], None], parts: Sequence[_Part], sizes: Sequence[float]) -> None:
    """Does the work of all parts, the last ones first, in as many threads as torch has, each with one of torch's.

    Small operations use two of torch's threads badly, and torch releases the interpreter's lock. The shares that the
    parts report are weighted with their sizes and reported as the attack's own. An exception in a part, or in who
    listens to the progress, ends all parts at their next report.

    Args:
        work: what is done with a part; it must not draw from a common generator.
        parts: what the work is divided into; the last one takes longest.
        sizes: how much work each part is.
    """
    reports = queue.SimpleQueue[tuple[int, float] | None]()
    stopped = threading.Event()

    def listen(number: int, share: float) -> None:
        if stopped.is_set():
            raise _StoppedError
        reports.put((number, share))

    def run_part(number: int) -> None:
        with progress_listener(lambda share: listen(number, share)):
            work(parts[number])
            listen(number, 1.0)

    threads = torch.get_num_threads()
    shares = [0.0] * len(parts)
    unfinished = len(parts)
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            # The last parts take longest, so they begin first.
            running = [pool.submit(run_part, number) for number in reversed(range(len(parts)))]
            for future in running:
                future.add_done_callback(lambda _: reports.put(None))
            try:
                while unfinished and not any(map(_failed, running)):
                    report = reports.get()
                    if report is None:
                        unfinished -= 1
                        continue
                    number, share = report
                    shares[number] = share
                    done = sum(share * size for share, size in zip(shares, sizes, strict=True))
                    report_progress(done / sum(sizes))
            finally:
                stopped.set()
                for future in running:
                    future.cancel()
        for future in running:
            if not future.cancelled() and not isinstance(future.exception(), _StoppedError):
                future.result()
    finally:
        torch.set_num_threads(threads)


def _failed(future: "Future[None]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is not None
