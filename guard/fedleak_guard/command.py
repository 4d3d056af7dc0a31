"""The command ``fedleak-guard``: for the person who runs the site, and for the output checker."""

import argparse
import contextlib
import json
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedleak_guard.capacity import lines_of, shapes_of
from fedleak_guard.chained_log import FIRST, NAME
from fedleak_guard.check import NotMadeError
from fedleak_guard.declared_checks import ReceivedModel, SimulatedTrainings
from fedleak_guard.evidence import ATTACKS, EGRESS, write_evidence
from fedleak_guard.gateway_log import GATEWAY_LOG, gateway_lines
from fedleak_guard.gaussian import gaussian_epsilon
from fedleak_guard.known_checks import checks_to_make, known_checks
from fedleak_guard.ledger import spent
from fedleak_guard.log_entry import read_decisions
from fedleak_guard.message import Message, tensors_hash
from fedleak_guard.own_data import chosen_records, with_own_data
from fedleak_guard.policy import Policy, read_policy
from fedleak_guard.privacy_json import privacy_faults
from fedleak_guard.thresholds import calibrated, logged_rounds, tensors_of, write_thresholds
from fedleak_recorder.arrays import as_array
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.fields_schema import schema_of
from fedleak_recorder.files import regular_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0 if all is well, 2 if something is wrong, with one line that says what."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (InputError, OSError) as error:
        print(f"fedleak-guard: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fedleak-guard", description="Guard of the site that sends an update.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, path: str = "") -> Any:
        subparser = commands.add_parser(name, help=text, description=text)
        subparser.set_defaults(run=run)
        if path:
            subparser.add_argument("path", metavar=path, type=Path)
        return subparser

    verify = command("verify", _verify_either, "check the chain of a log, and print what left the site", "LOG")
    verify.add_argument("--head", help="a hash noted earlier, which the chain must still contain")
    summaries = command("evidence", _evidence, f"write {EGRESS} and {ATTACKS} next to a log", "LOG")
    summaries.add_argument("--delta", type=float, default=1e-5, help="delta of epsilon (default: 1e-5)")
    command("check-policy", _check_policy, "check a policy, and print what a message can carry under it", "FILE")
    carries = command("capacity", _capacity, "print how many bits a message can carry under a policy", "POLICY")
    carries.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="received model, .npz or .safetensors")
    command("check-privacy", _check_privacy, "check that an NVFlare site's privacy.json has the guard", "FILE")
    gateway = command("flower-gateway", _flower_gateway, "run the gateway between a Flower SuperNode and its SuperLink")
    _add_gateway_options(gateway)
    calibrate = command("calibrate", _calibrate, "make the thresholds of the check received-model", "POLICY")
    _add_calibration_options(calibrate)
    command("hash", _hash, "print the hash of a received model, a .npz or .safetensors file", "FILE")
    command("checks", _checks, "list the checks")
    command("schema", _schema, "print the JSON schema of policies")
    return parser


def _add_gateway_options(gateway: argparse.ArgumentParser) -> None:
    gateway.add_argument("--superlink", required=True, metavar="HOST:PORT", help="address of the SuperLink")
    gateway.add_argument("--policy", required=True, metavar="FILE", help="the site's policy")
    gateway.add_argument("--listen", default="127.0.0.1:9192", metavar="HOST:PORT", help="where the SuperNode connects")
    gateway.add_argument("--insecure", action="store_true", help="connect to the SuperLink without TLS")
    gateway.add_argument("--root-certificates", metavar="FILE", help="certificates that sign the SuperLink's")
    gateway.add_argument("--certificate", metavar="FILE", help="the gateway's own certificate; without one, no TLS")
    gateway.add_argument("--key", metavar="FILE", help="private key of --certificate")
    gateway.add_argument(
        "--supernode-public-key", metavar="FILE", help="the SuperNode's key; else the first that calls"
    )
    gateway.add_argument("--superlink-private-key", metavar="FILE", help="key that the SuperLink knows; else a new one")
    gateway.add_argument(
        "--pace", type=float, default=3.0, metavar="SECONDS", help="time between own calls (default: 3)"
    )
    gateway.add_argument("--examples-key", default="num-examples", help="metric with the number of training examples")


def _add_calibration_options(calibrate: argparse.ArgumentParser) -> None:
    calibrate.add_argument("--out", type=Path, help="file of the thresholds (default: the policy's)")
    calibrate.add_argument("--false-positives", type=float, default=0.05, help="bound of all checks (default: 0.05)")
    calibrate.add_argument("--margin", type=float, default=2.0, help="factor of the largest honest value (default: 2)")
    calibrate.add_argument("--log", type=Path, help="log of honest rounds (default: the policy's)")
    calibrate.add_argument("--job", action="append", default=[], help="a training of the log that counts; else all")
    calibrate.add_argument("--simulate", action="store_true", help="simulate honest trainings in place of the log")
    calibrate.add_argument("--trainings", type=int, default=4, help="simulated trainings (default: 4)")
    calibrate.add_argument("--rounds", type=int, default=30, help="rounds of each (default: 30)")
    calibrate.add_argument("--clients", type=int, default=10, help="clients of each round (default: 10)")
    calibrate.add_argument("--examples", type=int, default=64, help="records of each other client (default: 64)")
    calibrate.add_argument("--learning-rate", type=float, default=0.1, help="of the clients' SGD (default: 0.1)")
    calibrate.add_argument("--epochs", type=int, default=1, help="passes over a client's records (default: 1)")
    calibrate.add_argument("--batch-size", type=int, help="records of a step (default: all)")


def _verify(options: argparse.Namespace) -> int:
    entries, torn = read_decisions(options.path)
    hashes = [FIRST, *(entry["hash"] for entry in entries)]
    way_out = "The end of the log was cut off or replaced; ask for a copy."
    require(options.head in (None, *hashes), f"the entry {options.head} in the chain", "no such entry", way_out)
    total = spent(entries)
    refused = sum(entry["event"] == "refused" for entry in entries)
    print(f"{len(entries)} entries in an unbroken chain, head {hashes[-1]}")
    print(f"{len(entries) - refused} messages released ({total.messages} with tensors), {refused} refused")
    print(
        f"epsilon of all, by the declared or added noise: {gaussian_epsilon(total.precision, 1e-5):.4g} at delta 1e-5"
    )
    if torn:
        print(f"{torn} bytes of an incomplete last entry, of which nothing left the site")
    return 0


def _evidence(options: argparse.Namespace) -> int:
    write_evidence(options.path, options.delta)
    print(f"{options.path.parent / EGRESS}\n{options.path.parent / ATTACKS}")
    return 0


def _check_policy(options: argparse.Namespace) -> int:
    policy = read_policy(options.path)
    print(f"{options.path}: {len(policy.tensors)} rules for tensors, evidence in {policy.evidence}")
    for name, kind in known_checks().items():
        sentence = f"  {name}: {policy.action(name, kind.action)}"
        if kind.exact:
            sentence += "; needs fedleak"
        if name in policy.required:
            sentence += "; required"
        print(sentence)
    print("what a message can carry at most, `fedleak-guard capacity` with a model says more:")
    print("\n".join(lines_of(policy)))
    return 0


def _capacity(options: argparse.Namespace) -> int:
    policy = read_policy(options.path)
    model = None
    if options.model is not None:
        regular_file(options.model)
        model = shapes_of(_tensors(options.model))
    print("\n".join(lines_of(policy, model)))
    return 0


def _check_privacy(options: argparse.Namespace) -> int:
    faults = privacy_faults(options.path)
    for fault in faults:
        print(f"fedleak-guard: {options.path}: {fault}", file=sys.stderr)
    if not faults:
        print(f"{options.path}: every scope has the guard")
    return 2 if faults else 0


def _verify_either(options: argparse.Namespace) -> int:
    if options.path.name != GATEWAY_LOG:
        return _verify(options)
    print("\n".join(gateway_lines(options.path, options.head)))
    return 0


def _flower_gateway(options: argparse.Namespace) -> int:
    try:
        from fedleak_guard.flower_gateway import Gateway, capacity, server_of
    except ImportError as error:
        way_out = 'Run `pip install "fedleak-guard[flower]"`.'
        raise InputError(expected="Flower 1.41 or later, below 2", found=str(error), way_out=way_out) from None
    host, _, port = options.listen.rpartition(":")
    is_port = port.isdecimal() and len(port) <= 5 and int(port) < 2**16
    require(is_port, "HOST:PORT after --listen", options.listen, "Give 127.0.0.1:9192.")
    logging.basicConfig(format="%(asctime)s %(message)s")
    protocol = "http" if options.insecure else "https"
    superlink = f"{protocol}://{options.superlink}"
    gateway = Gateway(
        superlink,
        options.policy,
        root_certificates=options.root_certificates,
        superlink_key=options.superlink_private_key,
        supernode_key=options.supernode_public_key,
        examples_key=options.examples_key,
        pace=options.pace,
    )
    # One thread answers the SuperNode, another one calls the SuperLink, at beats of its own.
    stopped = threading.Event()
    beats = threading.Thread(target=gateway.run, args=(stopped,), daemon=True)
    with server_of(gateway, host, int(port), certificate=options.certificate, key=options.key) as server:
        print(capacity(options.pace))
        print(f"the gateway to {superlink} listens at {host}:{server.server_address[1]}", flush=True)
        beats.start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
        stopped.set()
        beats.join(10)
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    policy = read_policy(options.path)
    out = options.out
    if out is None and policy.received.thresholds:
        out = Path(policy.received.thresholds)
    if out is None:
        way_out = "Give --out FILE, or received.thresholds in the policy."
        raise InputError(expected="a file for the thresholds", found="none", way_out=way_out)
    require(0 < options.false_positives < 1, "--false-positives between 0 and 1", options.false_positives, "Use 0.05.")
    if options.simulate:
        rounds, tensors, records = _simulated(options, policy)
        source = f"{options.trainings} simulated trainings of {options.rounds} rounds"
    else:
        entries, _ = read_decisions(options.log or Path(policy.evidence) / NAME)
        rounds, tensors, records, trainings = logged_rounds(entries, options.job)
        source = f"the log's rounds of {trainings} trainings"
    thresholds = calibrated(
        rounds,
        false_positives=options.false_positives,
        margin=options.margin,
        source=source,
        tensors=tensors,
        records=records,
    )
    write_thresholds(out, thresholds)
    of_rounds = f"{thresholds.values} honest rounds ({thresholds.source})"
    print(f"{out}: thresholds of {len(thresholds.thresholds)} checks from {of_rounds}")
    print(f"false findings of all checks together: at most {thresholds.false_positives:.4f} of rounds like these")
    for name, limit in thresholds.thresholds.items():
        print(f"  {name}: {limit:.6g}")
    return 0


def _simulated(options: argparse.Namespace, policy: Policy) -> tuple[list[dict[str, float]], str, int]:
    """Statistics of simulated rounds, hash of the model's tensors, and number of own records in each round."""
    # A message of nothing, to which the policy's section own adds what the site has.
    client = with_own_data(Message(job="", round=0), policy)
    network = client.network
    way_out = "Give own.data and own.network in the policy; the function draws new initial weights in each call."
    if network is None or client.records is None or client.labels is None:
        raise InputError(expected="records, labels and the network of the site", found="not all", way_out=way_out)
    numbers = {name: getattr(options, name) for name in ("trainings", "rounds", "clients", "examples", "epochs")}
    require(min(numbers.values()) >= 1 and options.learning_rate > 0, "numbers above 0", numbers, "Correct them.")
    simulated = SimulatedTrainings(
        trainings=options.trainings,
        rounds=options.rounds,
        clients=options.clients,
        examples=options.examples,
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        batch_size=options.batch_size,
    )
    check = checks_to_make()[ReceivedModel.name]()
    assert isinstance(check, ReceivedModel)  # plug-ins extend what they take the place of
    try:
        rounds = list(check.honest_rounds(network, client.records, client.labels, simulated))
    except NotMadeError as error:
        raise InputError(expected="the main package fedleak", found=str(error), way_out="Install it.") from None
    tensors = tensors_of(dict(network().state_dict()))
    chosen = chosen_records(client.records, client.labels)
    if chosen is None:
        return rounds, tensors, 0
    records, _ = chosen
    return rounds, tensors, len(records)


def _hash(options: argparse.Namespace) -> int:
    regular_file(options.path)
    print(tensors_hash(_tensors(options.path)))
    return 0


def _tensors(path: Path) -> dict[str, Any]:
    """Tensors of a model in a file."""
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: as_array(file[name], where=name) for name in file.files}
        with safe_open(path, "numpy") as file:
            return {name: as_array(file.get_tensor(name), where=name) for name in file.keys()}  # noqa: SIM118
    except (ValueError, TypeError, SafetensorError) as error:
        way_out = "Save the state dict with safetensors or numpy.savez."
        raise InputError(expected="a .npz or .safetensors file", found=f"{error} in {path}", way_out=way_out) from None


def _checks(_: argparse.Namespace) -> int:
    for name, kind in known_checks().items():
        print(
            f"{name}: {kind.text}; a finding is {kind.action} unless the policy says one of {', '.join(kind.actions)}"
        )
    return 0


def _schema(_: argparse.Namespace) -> int:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Policy of a site, fedleak-guard"}
    print(json.dumps({**head, **schema_of(Policy)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
