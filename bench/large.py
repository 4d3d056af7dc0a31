"""A federation of a million clients, or of a few with an adapter of a large model: recorded and audited, with memory.

``python -m bench.large million --folder DIR`` records a round of a million clients and one of a tenth of them, of a
softmax regression on generated data with 10^4 numbers, as bfloat16, and audits links and class counts of a sample.
``python -m bench.large adapter --folder DIR`` records two rounds of 100 clients with 13.6 million numbers (LoRA of rank
32 at the query and value projections of a model with 32 layers of width 4,096 and 1,024), which are declared noise,
and audits all that fits. Each part runs in a process of its own, whose time and peak memory are printed.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.auditing import audit, run_audit
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.registry import chosen_attacks
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder
from fedleak_recorder.sent import Sent

CLASSES, FEATURES, EXAMPLES, CHUNK = 10, 999, 10, 500
ADAPTERS, LAYERS, RANK, WIDTHS, SIGMA = 100, 32, 32, {"q_proj": 4096, "v_proj": 1024}, 1e-3
KEY = b"key of the benchmark"


def record_million(folder: Path, clients: int) -> None:
    """Records one SGD step of each client on its own class shares, and one of a tenth of the clients again."""
    draws = torch.Generator().manual_seed(0)
    model = {"output.weight": torch.zeros(CLASSES, FEATURES), "output.bias": torch.zeros(CLASSES)}
    means = torch.randn(CLASSES, FEATURES, generator=draws) / 4
    spent = 0.0
    with Recorder(folder, parameters=model, holds="deltas", dtype="bfloat16", data="generated", key=KEY) as recorder:
        for number, most in enumerate((clients, clients // 10)):
            with recorder.streamed(number, model) as add:
                for start in range(0, most, CHUNK):
                    own = range(start, min(start + CHUNK, most))
                    updates, counts = softmax_steps(own, number, means)
                    begin = time.perf_counter()
                    for place, client in enumerate(own):
                        arrays = {name: value[place] for name, value in updates.items()}
                        truth = {"class_counts": counts[place], "client": client}
                        add(Sent(client=str(client), examples=EXAMPLES, arrays=arrays, truth=truth))
                    spent += time.perf_counter() - begin
    print(f"  of it the recorder: {spent:.0f} s", flush=True)


def softmax_steps(clients: range, number: int, means: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """One step of each client at the model zero, as bfloat16, and its class counts ``(C, K)``."""
    own, fresh = (torch.Generator().manual_seed(clients.start + seed) for seed in (0, 10**9 * (number + 1)))
    shares = torch.rand(len(clients), CLASSES, generator=own) ** 4
    label = torch.multinomial(shares, EXAMPLES, replacement=True, generator=fresh)
    inputs = torch.randn(len(clients), EXAMPLES, FEATURES, generator=fresh) + means[label]
    wrong = torch.nn.functional.one_hot(label, CLASSES) - 1 / CLASSES
    updates = {"output.weight": wrong.mT @ inputs / EXAMPLES, "output.bias": wrong.mean(1)}
    return {name: (0.1 * value).bfloat16() for name, value in updates.items()}, wrong.round().long().sum(1)


def audit_million(folder: Path, victims: int, jobs: int) -> None:
    """Links of a sample of clients, and their class counts by all attacks that know nothing of the learner."""
    links = ["linkability/linkability", "linkability/plain-cosine", "linkability/link-counts"]
    print(audit(folder, links, victims=256, progress=False), flush=True)
    counts = [
        "composition/llg-alone",
        "composition/last-layer-counts",
        "composition/output-counts-alone",
        "composition/equal-counts",
    ]
    plan = AuditPlan(recording=Recording(folder), attacks=chosen_attacks(counts), victims=victims, describe=False)
    print(run_audit(plan, engine=Processes(jobs=jobs) if jobs > 1 else None, progress=False), flush=True)


def record_adapter(folder: Path) -> None:
    """Records two rounds of updates of an adapter that are noise alone, as declared."""
    shapes = {}
    for layer in range(LAYERS):
        for name, width in WIDTHS.items():
            shapes[f"layers.{layer}.self_attn.{name}.lora_A.weight"] = (RANK, 4096)
            shapes[f"layers.{layer}.self_attn.{name}.lora_B.weight"] = (width, RANK)
    release = {"clip": 1.0, "noise_scale": SIGMA, "parameters": list(shapes)}
    print(f"  {sum(a * b for a, b in shapes.values()):,} numbers of each client", flush=True)
    spent, draws = 0.0, torch.Generator().manual_seed(0)
    with Recorder(folder, parameters=shapes, holds="deltas", data="generated", key=KEY, releases=[release]) as recorder:
        for number in range(2):
            with recorder.streamed(number, None) as add:
                for client in range(ADAPTERS):
                    sent = {name: SIGMA * torch.randn(shape, generator=draws) for name, shape in shapes.items()}
                    begin = time.perf_counter()
                    add(Sent(client=str(client), examples=EXAMPLES, arrays=sent, truth={"client": client}))
                    spent += time.perf_counter() - begin
    print(f"  of it the recorder: {spent:.0f} s", flush=True)


def audit_adapter(folder: Path) -> None:
    found = audit(folder, progress=False)
    print(found, *(f"{name}: {reason}" for name, reason in found.missing.items()), sep="\n", flush=True)


def measured(what: str, work: Callable[..., None], *arguments: object) -> None:
    """Runs a part in a process of its own, and prints its time and the peak memory."""
    print(f"{what} ...", flush=True)
    process = multiprocessing.get_context("spawn").Process(target=_with_memory, args=(work, *arguments))
    start = time.perf_counter()
    process.start()
    process.join()
    print(f"{what}: {time.perf_counter() - start:.0f} s, exit status {process.exitcode}", flush=True)


def _with_memory(work: Callable[..., None], *arguments: object) -> None:
    work(*arguments)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"  peak memory of one process {peak / 2**20:.2f} GiB", flush=True)


def main() -> None:
    """Records, then audits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("million", "adapter"))
    parser.add_argument("--folder", type=Path, required=True, help="folder of the recording, with 25 GB free")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--victims", type=int, default=10_000, help="clients whose class counts are inferred")
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.what == "million":
        measured("recording", record_million, chosen.folder, chosen.clients)
        measured("audit", audit_million, chosen.folder, chosen.victims, chosen.jobs)
    else:
        measured("recording", record_adapter, chosen.folder)
        measured("audit", audit_adapter, chosen.folder)


if __name__ == "__main__":
    main()
