"""Python programs in processes of their own that have imported sereno already.

A new interpreter spends half a second on imports, which is most of the time of many tests. A fork server imports sereno
once for each test process, and forks itself for each program. Programs whose imports, interpreter options or PYTHON…
variables are tested need a real interpreter: `subprocess.Popen`.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

# Also what programs import only when they serve or send: the HTTP server takes longer than all the rest.
PRELOADED = (
    "aiohttp", "sereno.app", "sereno.cli.context", "sereno.cli.services.run", "sereno.cli.services.server",
    "sereno.cli.services.worker", "sereno.server.application", "sereno.server.connections", "sereno.testing.kit",
    "uvicorn",
)  # fmt: skip


class WarmProcess(subprocess.Popen[Any]):
    """`WarmProcess([sys.executable, "-m", "sereno", "worker", "shop:app"], env=…)`: a Popen that forks the server.

    The command is Python with `-m MODULE`, `-c PROGRAM` or a file; other options are refused. Private methods of Popen
    are overridden, so that everything else is inherited.
    """

    def _execute_child(self, *given: Any) -> None:
        (command, _, preexec, _, pass_fds, cwd, env, _, _, _, *pipes, _, gid, gids, uid, umask, session, group) = given
        python, *words = [os.fspath(word) for word in command]
        if python != sys.executable or (words[0].startswith("-") and words[0] not in ("-m", "-c")):
            raise ValueError(f"not a Python program: {command[:2]}")
        if preexec or pass_fds or (gid, gids, uid, umask, group) != (None, None, None, -1, -1):
            raise ValueError("a warm process is started with files, a directory and an environment only")
        stdin, ours_in, ours_out, stdout, ours_err, stderr = pipes
        ends = [number if end == -1 else end for number, end in enumerate((stdin, stdout, stderr))]
        connection, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server(), [b"."], [theirs.fileno(), *ends])
        self._close_pipe_fds(stdin, ours_in, ours_out, stdout, ours_err, stderr)  # type: ignore[attr-defined]
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (env or os.environ).items()}
        request = [words, os.fspath(cwd or Path.cwd()), environment, session]
        connection.sendall(json.dumps(request).encode() + b"\n")
        self._replies = connection.makefile()
        connection.close()
        self.pid = int(self._replies.readline())
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        self._wait(0, may_raise=False)
        return self.returncode

    def _wait(self, timeout: float | None, *, may_raise: bool = True) -> int | None:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                if select.select([self._replies], [], [], timeout)[0]:
                    # An empty line is an error: the process that waits for the program was killed.
                    self.returncode = os.waitstatus_to_exitcode(int(self._replies.readline()))
                    self._replies.close()
                elif may_raise:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def run(command: list[str], *, timeout: float, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, with its output captured: as `subprocess.run`."""
    with WarmProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@cache
def _server() -> socket.socket:
    """Start the fork server; return the socket for requests. It ends when this process does."""
    ours, theirs = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with theirs:
        command = [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())]
        server = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


# What follows runs in the fork server.


def serve(requests: socket.socket) -> Callable[[], None]:
    """Fork for each request; return in each forked process the function that it has to run."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    # The exit status of the processes that wait for programs is not used.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not descriptors:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            return _start(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _start(connection: int, *files: int) -> Callable[[], None]:
    """Fork the program, wait for it and report its exit status; return in the program's process what it has to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=connection) as replies:
        with replies.makefile() as lines:
            words, directory, environment, new_session = json.loads(lines.readline())
        program = os.fork()
        if program != 0:
            for file in files:
                os.close(file)
            replies.sendall(f"{program}\n".encode())
            _, status = os.waitpid(program, 0)
            with suppress(BrokenPipeError):
                replies.sendall(f"{status}\n".encode())
            os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if new_session:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    _open_streams()
    os.environ.clear()
    os.environ.update(environment)
    # These were read from the environment of the server.
    time.tzset()
    tempfile.tempdir = None
    os.chdir(directory)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = filter(None, paths)
    return lambda: _run(*words)


def _open_streams() -> None:
    """Open the standard streams as a new interpreter does, which looks at the file before it chooses a buffer."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the end
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


def _run(what: str, *arguments: str) -> None:
    match what:
        case "-m":
            sys.path.insert(0, str(Path.cwd()))
            sys.argv = list(arguments)
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        case "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments[1:]]
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(arguments[0], "<string>", "exec"), vars(main))  # noqa: S102 - the program of a test
        case file:
            sys.path.insert(0, str(Path(file).parent.resolve()))
            sys.argv = [file, *arguments]
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))()
