# SPDX-License-Identifier: Apache-2.0
"""fake_worker.py FACTS ANSWERS: speaks the protocol of the workers of benchmarks/peers without measuring anything.
Both are JSON: FACTS the first line, ANSWERS what a command is answered with. A command without an answer ends it with an
error, and the answer "silence" is none."""
import json
import sys
import time


def main():
    answers = json.loads(sys.argv[2])
    print("a line that a library prints", flush=True)
    print(sys.argv[1], flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        if words[0] not in answers:
            print(f"fake_worker: error: no answer to {words[0]}", file=sys.stderr)
            sys.exit(1)
        if words[0] == "dump":
            with open(words[1], "wb"):
                pass
        if answers[words[0]] == "silence":
            time.sleep(60)
        print(json.dumps(answers[words[0]]), flush=True)


main()
