# SPDX-License-Identifier: Apache-2.0
"""check_terminal.py PROGRAM: what train_gpt's progress looks like on terminals, and where one only seems to be there."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

PROGRAM = sys.argv[1]
FLAGS = ["--batch", "4", "--sequence", "8", "--layers", "1", "--width", "8", "--heads", "2", "--steps", "300"]
wrong = []


def on_terminal(columns, **variables):
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_COMM"))}
    started = subprocess.Popen([PROGRAM, *FLAGS], stdout=theirs, stdin=subprocess.DEVNULL,
                               env={**environment, **variables})
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        sent += part
    os.close(ours)
    expect(started.wait() == 0, f"{columns} columns, {variables}: ends well", sent)
    return sent.decode().replace("\r\n", "\n")


def expect(condition, what, sent=b""):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        print(repr(sent[-1500:]))


def main():
    for columns in (30, 50, 90, 200):
        sent = on_terminal(columns, TERM="xterm")
        shown = [line for line in re.split(r"[\r\n]", sent.replace("\x1b[K", "")) if re.match(r"\[[#.]+\] step|step ", line)]
        expect("\r" in sent and shown and max(map(len, shown)) < columns, f"{columns} columns: no line is wider", sent)
        expect(all("step" in line and " left" in line for line in shown), f"{columns} columns: step and time are there", sent)
        expect(all(line.startswith("[") for line in shown) == (columns > 30), f"{columns} columns: a bar where it fits", sent)
        expect(all("norm" in line for line in shown) == (columns >= 90), f"{columns} columns: the norm where it fits", sent)
    for variables in ({"TERM": "dumb"}, {"TERM": ""}, {"TERM": "xterm", "OMPI_COMM_WORLD_SIZE": "1"},
                      {"TERM": "xterm", "PMI_RANK": "0"}):
        sent = on_terminal(80, **variables)
        expect("\r" not in sent and "\x1b" not in sent and sent.count("\nstep ") > 10, f"{variables}: plain lines", sent)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
