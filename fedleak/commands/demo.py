"""``fedleak demo``: three trainings, what the server infers from them, and one report."""

import time
from dataclasses import dataclass
from pathlib import Path

from fedleak.commands.shared import shared_options
from fedleak.commands.shared.command import Command, Options


@dataclass(frozen=True)
class DemoOptions(Options):
    """Values of the options of ``fedleak demo``."""

    out: str = "runs/demo"


def demo(options: DemoOptions) -> int:
    """Trains on handwritten digits and on generated clicks, attacks the recordings, and writes one report."""
    start = time.perf_counter()
    print(
        "The demo trains three small systems on this machine, without a download, and attacks what their server sees.\n"
        "It takes about a minute on two idle cores; Ctrl-C ends it. Loading torch and lightning ...",
        flush=True,
    )
    # After the announcement, because it takes seconds.
    from fedleak.core.seeding import secret_key
    from fedleak.reports.metric_words import number_in_words
    from fedleak.reports.results_folder import print_outputs, shell_command
    from fedleak.tables.demo import first_client, leak_and_accuracy, run_system, shares, systems, write_joined

    # One key for all trainings: a client of both trainings on digits has one number in the report.
    root = Path(options.out)
    key = secret_key()
    digits, with_noise, recommender = systems()
    print("\n1 of 3: ten clients train a classifier of handwritten digits", flush=True)
    plain = run_system(digits, root, key=key)
    client = first_client(plain)
    print("\nWhat the server infers about one client from its update of the first round:\n")
    print("\n".join(shares(plain, client)), flush=True)
    print(f"\n({time.perf_counter() - start:.0f} seconds, {time.process_time():.0f} of them CPU time)")
    epsilon = with_noise.overrides["model.defenses"][0]["init_args"]["epsilon"]
    print(
        f"\n2 of 3: the same training, with local DP of epsilon {epsilon} in every round, a weak guarantee", flush=True
    )
    private = run_system(with_noise, root, key=key)
    print("\nThe same client:\n")
    print("\n".join(shares(private, client)))
    print("\nOf 100 examples of a client, so many are assigned to a wrong class, on average over ten clients\n")
    print("\n".join(leak_and_accuracy([plain, private])), flush=True)
    print("\n3 of 3: generated users train a recommender", flush=True)
    clicks = run_system(recommender, root)
    best = clicks.answer.row
    baseline = clicks.answer.baseline
    assert best is not None  # configs/demo.yaml names attacks and a baseline
    assert baseline is not None
    from_update = number_in_words(clicks.answer.metric, float(best["mean"]))
    without_update = number_in_words(clicks.answer.metric, baseline.value)
    print(
        f"\nWhich items a user clicked: of a right and a wrong one, the right one in {from_update} of 100 cases;"
        f" without the update in {without_update}. Generated data are no evidence of a leak.\n"
    )
    page = write_joined(root)
    print(f"{time.perf_counter() - start:.0f} seconds, {time.process_time():.0f} of them CPU time")
    next_command = shell_command("convert", "MANIFEST.yaml", "--out", "runs/own")
    outputs = {"recordings": [root / system.name / "deltas" for system in systems()], "report": [page]}
    print_outputs(outputs, then=f"{next_command}  # audit your own system, see docs/reference/recording-format.md")
    return 0


COMMAND = Command(
    heading="start here",
    place=10,
    summary="trains on handwritten digits and generated clicks, attacks the recordings, writes one report",
    groups={shared_options.WRITTEN: [shared_options.out("folder of the recordings and of the report", "runs/demo")]},
    options=DemoOptions,
    run=demo,
    description="It needs no download and takes about a minute.",
    loads="",  # it announces itself
)
