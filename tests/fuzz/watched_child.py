"""``python -m tests.fuzz.watched_child``: opens hostile files in a process that sees what they lead to.

Sockets are blocked and recorded; an audit hook sees files, folders, processes, libraries and imports of Python; inotify
sees what compiled code opens in the bait. What the same commands do with harmless files before is usual.
"""

import ctypes
import functools
import io
import json
import os
import re
import resource
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

_SECONDS = 90
_MORE_MEMORY = 6 * 2**30
_PROGRAMS = ("git",)
"""Programs that the project starts itself: git says which commit it is."""
_OPEN, _ACCESS = 0x20, 0x1
_NETWORK = re.compile(r"socket\.(connect|getaddrinfo|gethostbyname|gethostbyaddr|getnameinfo|sendto|sendmsg)")
_PROCESSES = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile")


class Watch:
    """What happens while a task runs.

    Args:
        allowed: folders whose files may be opened: of the interpreter, the project, and the child's own.
    """

    def __init__(self, allowed: list[Path]) -> None:
        self._allowed = [os.path.realpath(path) for path in allowed]
        self.inside = ""
        self.usual: set[str] = set()
        self.active = False
        self.found: list[tuple[str, str]] = []

    def note(self, kind: str, what: str) -> None:
        """Keeps an event, unless it is usual."""
        if f"{kind} {what}" not in self.usual:
            self.found.append((kind, what))

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Audit hook of the interpreter."""
        if not self.active:
            return
        self.active = False
        try:
            self._see(event, args)
        finally:
            self.active = True

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "os.chdir", "glob.glob", "os.walk") and args:
            self._path("file", args[0])
        elif event == "ctypes.dlopen" and isinstance(args[0], str) and "/" in args[0]:
            self._path("library", args[0])
        elif _NETWORK.match(event):
            address = args[1] if event in ("socket.connect", "socket.sendto", "socket.sendmsg") else args[0]
            self.note("network", f"{event} {address}"[:200])
        elif event in _PROCESSES:
            program = Path(str(args[0])).name
            if program not in _PROGRAMS:
                self.note("process", f"{event} {args[0]} {args[1] if len(args) > 1 else ''}"[:200])
        elif event == "import" and str(args[0]).split(".")[0] in ("beacon", "stranger"):
            self.note("import", str(args[0])[:200])
        elif event == "pickle.find_class" and args[0] in ("builtins", "os", "posix", "subprocess", "beacon"):
            self.note("pickle", f"{args[0]}.{args[1]}")

    def _path(self, kind: str, given: Any) -> None:
        if isinstance(given, int) or given is None:
            return
        name = os.fsdecode(given) if isinstance(given, str | bytes | os.PathLike) else str(given)
        path = os.path.realpath(name)
        # What a link is called by counts too: it is opened by its own name, and leads elsewhere.
        within = any(
            path == folder or path.startswith(f"{folder}/") for folder in (*self._allowed, self.inside) if folder
        )
        if not within:
            self.note(kind, path)


class Bait:
    """The bait's folders, with what any code opens in them."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK)
        self._names: dict[int, str] = {}
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            number = self._libc.inotify_add_watch(self._file, os.fsencode(place), _OPEN | _ACCESS)
            self._names[number] = str(place)

    def opened(self) -> list[str]:
        """Files and folders that were opened since the last call."""
        found: list[str] = []
        while True:
            try:
                content = os.read(self._file, 2**16)
            except BlockingIOError:
                return sorted(set(found))
            while content:
                number, _, _, size = struct.unpack_from("iIII", content)
                name = content[16 : 16 + size].rstrip(b"\0").decode()
                found.append(f"{self._names.get(number, '?')}/{name}")
                content = content[16 + size :]


def block_sockets(watch: Watch) -> None:
    """Refuses and records connections and look-ups of names; an audit hook alone would let them pass."""

    def refuse(name: str) -> Callable[..., Any]:
        def refused(*given: Any, **_: Any) -> Any:
            target = next((one for one in given if isinstance(one, str | tuple)), "")
            if watch.active:
                watch.note("network", f"{name} {target}"[:200])
            raise OSError("the network is blocked")

        return refused

    for name in ("connect", "connect_ex", "sendto", "sendmsg"):
        setattr(socket.socket, name, refuse(name))
    for name in ("getaddrinfo", "create_connection", "gethostbyname", "gethostbyaddr"):
        setattr(socket, name, refuse(name))


class SlowError(Exception):
    """A task takes longer than a user would wait."""


def _stop(*_: Any) -> None:
    raise SlowError


def run(call: Callable[[], object]) -> tuple[str, str]:
    """How a command ends: refused, accepted, or what it may not do; and its message."""
    said = io.StringIO()
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_SECONDS)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            status = call()
    except SystemExit as left:
        status = left.code
    except SlowError:
        return "slow", ""
    except MemoryError as error:
        return "memory", str(error)[:200]
    except BaseException as error:
        from tests.fuzz.hostile_files import refused

        if refused(error):
            return "refused", " ".join(str(error).split())[:200]
        kind = "memory" if "allocate" in str(error) else "traceback"
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in frame.filename
        ]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        return kind, f"{type(error).__name__} {where} {' '.join(str(error).split())[:150]}"
    finally:
        signal.alarm(0)
    message = " ".join(said.getvalue().split())[-200:]
    return ("refused" if status == 2 else "accepted"), message


def main() -> None:
    """Runs the tasks of ``SEED NUMBER,NUMBER...``; a line of JSON for each."""
    seed, numbers = int(sys.argv[1]), [int(one) for one in sys.argv[2].split(",")]
    extra = sys.argv[3:]
    # realpath, as /tmp may be a link
    work = Path(os.path.realpath(tempfile.mkdtemp(prefix="watched-")))
    for name, value in {
        "HOME": "home",
        "XDG_CACHE_HOME": "cache",
        "MPLCONFIGDIR": "cache/mpl",
        "HF_HOME": "cache/hf",
    }.items():
        os.environ[name] = str(work / "own" / value)
        (work / "own" / value).mkdir(parents=True, exist_ok=True)
    (work / "own/tmp").mkdir()
    os.environ |= {"FEDLEAK_CACHE": str(work / "own/cache/fedleak"), "TMPDIR": str(work / "own/tmp")}
    tempfile.tempdir = None
    root = Path(__file__).resolve().parents[2]
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    watch = Watch([root, Path(sys.prefix), Path(sys.base_prefix), *installed, work / "own"])
    block_sockets(watch)
    sys.addaudithook(watch.hook)
    _tasks(seed, numbers, extra, work, watch)


def _tasks(seed: int, numbers: list[int], extra: list[str], work: Path, watch: Watch) -> None:
    import random

    from tests.fuzz import hostile_controls
    from tests.fuzz.hostile_files import Place, kind_of, make_bait, make_module

    bait, on_path = work / "bait", work / "on-path"
    make_bait(bait)
    make_module(on_path)
    sys.path.append(str(on_path))
    watch.usual.add(f"file {on_path}")  # each import of a module that is nowhere lists it
    # Scikit-learn asks once in an audit which libraries the process itself has loaded.
    watch.usual.add(f"file /proc/{os.getpid()}/maps")
    native = Bait(bait)

    def task(name: str, place: Place, make: Callable[[], tuple[str, Callable[[], object]]]) -> dict[str, Any]:
        said, call = make()
        native.opened()
        watch.inside, watch.found, started = str(place.inside), [], time.monotonic()
        watch.active = True
        try:
            outcome, message = run(call)
        finally:
            watch.active = False
        found = sorted(set(watch.found)) + [("bait", path) for path in native.opened()]
        seconds = round(time.monotonic() - started, 1)
        return {"name": name, "said": said, "outcome": outcome, "message": message, "found": found, "seconds": seconds}

    # What the commands open for harmless files, e.g. fonts and the list of processors, is usual.
    for number, harmless in enumerate(hostile_controls.HARMLESS):
        place = Place(work / "harmless" / str(number), bait)
        answer = task(harmless.__name__, place, functools.partial(harmless, place))
        watch.usual |= {f"{kind} {what}" for kind, what in answer["found"] if str(bait) not in what}
        print(json.dumps({**answer, "number": f"harmless {number}"}), flush=True)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in extra:
        place = Place(work / "control" / name, bait)
        control = getattr(hostile_controls, name)
        answer = task(name, place, functools.partial(control, place))
        print(json.dumps({**answer, "number": name}), flush=True)
    for number in numbers:
        kind, place = kind_of(number), Place(work / "tasks" / str(number) / "in", bait)
        draws = random.Random(f"{seed} {number}")
        answer = task(kind.name, place, functools.partial(kind.write, place, draws))
        print(json.dumps({**answer, "number": number}), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
