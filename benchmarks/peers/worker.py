# SPDX-License-Identifier: Apache-2.0
"""Processes that stay alive and measure when they are told to, so that two sides can take turns on the same processors.

A worker reads a line with a command, and answers with a line of JSON; its first line says what it is. One side may
consist of several processes that all get every command, as ranks that no launcher starts.
"""
import json
import os
import pathlib
import selectors
import signal
import subprocess
import tempfile
import time

from refusal import Unavailable, WrongData


def merged(answers):
    """The first process's answer, in which numbers are the largest of all of them. "begin" and "end", by the machine's
    clock, become "seconds": from the first begin to the last end, as processes may have to take turns."""
    result = dict(answers[0])
    for other in answers[1:]:
        for key, value in other.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                result[key] = (min if key == "begin" else max)(result.get(key, value), value)
    if "begin" in result and "end" in result:
        result["seconds"] = result.pop("end") - result.pop("begin")
    return result


class Worker:
    """One side of a comparison: one process or several, with the answers of the slowest."""

    def __init__(self, name, commands, environment=None, timeout=120):
        """commands: argument lists, a process each; environment: what all get besides this process's own."""
        self.name = name
        self.commands = commands
        self.timeout = timeout
        self.processes = []
        self.errors = []
        self.unread = {}  # by file descriptor: what came after the last whole line
        try:
            for command in commands:
                # Of its own session: a launcher's processes end with it.
                self.errors.append(tempfile.TemporaryFile())
                self.processes.append(subprocess.Popen(
                    [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=self.errors[-1], env={**os.environ, **(environment or {})}, start_new_session=True, bufsize=0))
                self.unread[self.processes[-1].stdout.fileno()] = b""
            self.facts = self._answers()[0]
        except OSError as error:
            self.close()
            raise Unavailable(f"{name}: cannot be started: {error}") from None
        except BaseException:
            self.close()
            raise

    def ask(self, *words):
        """Sends a command and gives what merged() makes of the processes' answers."""
        line = (" ".join(str(word) for word in words) + "\n").encode()
        for process in self.processes:
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except OSError:
                self._fail(f"did not take '{words[0]}'")
        return merged(self._answers())

    def with_ranks(self, ranks):
        """Itself.
        @raise WrongData when it says that it has another number of ranks"""
        if self.facts.get("ranks") != ranks:
            raise WrongData(f"{self.name}: has {self.facts.get('ranks')} ranks, asked for {ranks}")
        return self

    def close(self):
        """Ends all processes: kindly, then not."""
        for process in self.processes:
            try:
                process.stdin.write(b"quit\n")
                process.stdin.close()
            except OSError:
                pass
        deadline = time.monotonic() + 5
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            process.stdout.close()
        for file in self.errors:
            file.close()
        self.processes = []
        self.errors = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _answers(self):
        deadline = time.monotonic() + self.timeout
        return [self._answer(process, deadline) for process in self.processes]

    def _answer(self, process, deadline):
        """The next line that is JSON: libraries may print lines of their own."""
        output = process.stdout.fileno()
        with selectors.DefaultSelector() as waiting:
            waiting.register(output, selectors.EVENT_READ)
            while True:
                line, end, rest = self.unread[output].partition(b"\n")
                if not end:
                    if not waiting.select(max(0.0, deadline - time.monotonic())):
                        self._fail(f"gave no answer for {self.timeout} seconds")
                    more = os.read(output, 65536)
                    if not more:
                        self._fail("ended")
                    self.unread[output] += more
                    continue
                self.unread[output] = rest
                if line.startswith(b"{"):
                    try:
                        return json.loads(line)
                    except ValueError:
                        self._fail(f"answered '{line.decode(errors='replace')}', which is no JSON")

    def _fail(self, what):
        text = ""
        for process in self.processes:
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        for file in self.errors:
            file.seek(0)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
            text = text or " | ".join(lines[-3:])
        raise WrongData(f"{self.name}: {what}" + (f": {text}" if text else ""))


def torch_worker(name, python, script, *words, ranks=1, meeting=None, environment=None, timeout=120):
    """A script beside this file on a thread of each process; ranks that meet in a file are told who they are, and where."""
    file = pathlib.Path(__file__).with_name(script)
    commands = [[python, "-B", file, *words, *([rank, ranks, meeting] if meeting else ())] for rank in range(ranks)]
    return Worker(name, commands, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **(environment or {})}, timeout)


def finished(what, command, environment=None, failed=WrongData):
    """What a program that has ended well has printed on its standard output, and on the other one.
    @raise failed, which says what it was and the end of its errors"""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, **(environment or {})}, timeout=600, check=False)
    errors = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise failed(f"{what}: {errors.strip()[-300:]}")
    return done.stdout.decode(errors="replace"), errors


def take_turns(rounds, *sides):
    """Rounds in which each side measures once, in order; gives a list of seconds for each side."""
    seconds = [[] for _ in sides]
    for _ in range(rounds):
        for measured, side in zip(seconds, sides):
            value = side()
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
                raise WrongData(f"a worker answered {value!r} where seconds above 0 are expected")
            measured.append(float(value))
    return seconds
