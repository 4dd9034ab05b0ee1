# SPDX-License-Identifier: Apache-2.0
"""What the workers in Python have in common; nothing but the standard library is needed here."""
import json
import os
import sys


def pin_to(number):
    """Binds this process, and the threads that it will start, to one processor, counted round."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def answer(reply):
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def serve(facts, handlers):
    """Answers commands until the input ends: handlers maps a command to a function of its words that gives a dict."""
    answer(facts)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            return
        if words[0] not in handlers:
            raise ValueError(f"command '{words[0]}': expected {', '.join(handlers)} or quit")
        answer(handlers[words[0]](*words[1:]))
