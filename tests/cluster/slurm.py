"""A SLURM of one node on this machine: own folder, own key, loopback only, gone when it is left."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CORES = 2
NODE = "localhost"

_SETTINGS = """
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={controller}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
ReturnToService=2
KillWait=10
MinJobAge=3600
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=test Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """What keeps this machine from running it, None where nothing does."""
    absent = [name for name in (*DAEMONS, "sbatch", "srun", "scontrol") if shutil.which(name, path=_path()) is None]
    if absent:
        return f"no {', '.join(absent)}: `make test-cluster` installs them from Debian's packages as root"
    return None if os.geteuid() == 0 else "SLURM's daemons run as root: `sudo make test-cluster`"


@dataclass(frozen=True)
class Cluster:
    """A running one.

    Attributes:
        folder: its configuration, state and logs.
        environment: what its commands need.
    """

    folder: Path
    environment: Mapping[str, str]

    def call(self, *command: str, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> str:
        """Runs one of its commands and returns what it prints."""
        environment = {**self.environment, **(more or {})}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd, env=environment)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def submit(self, *arguments: str, cwd: Path, more: Mapping[str, str] | None = None) -> str:
        """Hands a batch file in, and returns the job's number."""
        return self.call("sbatch", "--parsable", *arguments, cwd=cwd, more=more).strip()

    def jobs(self, job: str) -> list[dict[str, str]]:
        """What the controller says of a job, or of every task of an array."""
        blocks = self.call("scontrol", "show", "job", job, "--oneliner").strip().splitlines()
        return [dict(part.split("=", 1) for part in block.split() if "=" in part) for block in blocks]

    def states(self, job: str) -> set[str]:
        """The states that a job, or the tasks of an array, are in."""
        return {found["JobState"] for found in self.jobs(job)}

    def wait(self, job: str, *, seconds: float = 240) -> set[str]:
        """Until a job has ended; returns its states."""
        running = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}
        until(lambda: not self.states(job) & running, seconds=seconds, what=f"the end of job {job}: {self.jobs(job)}")
        return self.states(job)


def until(condition: object, *, seconds: float, what: str) -> None:
    """Waits until a condition holds; fails after so many seconds."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Starts the daemons in the foreground of processes of our own, and ends them."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(secrets.token_bytes(64))
    (folder / "munge.key").chmod(0o400)
    settings = _SETTINGS.format(
        folder=folder,
        node=NODE,
        host=socket.gethostname().split(".")[0],
        cores=CORES,
        controller=_free_port(),
        node_port=_free_port(),
    )
    (folder / "slurm.conf").write_text(settings)
    environment = {**_outside(), "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
    running = Cluster(folder, environment)
    with contextlib.ExitStack() as stack:
        for command in (_munged(folder), ["slurmctld", "-D"], ["slurmd", "-D", "-N", NODE]):
            stack.enter_context(_daemon(command, folder, environment))
            if command[0] == "munged":
                until((folder / "munge.socket").exists, seconds=20, what="munged")
        until(lambda: _idle(running), seconds=60, what=f"the node; see {folder}/slurmctld.log and slurmd.log")
        yield running
        subprocess.run(["scancel", "--user=root"], env=environment, timeout=60)
        until(lambda: _idle(running), seconds=60, what="the last job's end")


def _munged(folder: Path) -> list[str]:
    return [
        *("munged", "--foreground", "--force", "--num-threads=1", f"--key-file={folder}/munge.key"),
        *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid", f"--seed-file={folder}/munge.seed"),
        f"--log-file={folder}/munged.log",
    ]


@contextlib.contextmanager
def _daemon(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with (folder / f"{command[0]}.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def _idle(running: Cluster) -> bool:
    shown = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, timeout=60, env=running.environment
    )
    return shown.stdout.strip() == "idle"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _path() -> str:
    """The daemons lie in /usr/sbin, which an ordinary user's path may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _outside() -> dict[str, str]:
    """The environment without a job's: these tests may themselves run inside one."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
