# SPDX-License-Identifier: Apache-2.0
"""What all checks here say: what is expected, whether it is so, and at the end how much is not."""
import sys

wrong = []


def expect(condition, what, more=""):
    """`more` is printed where it is not so: a text, or a process that has ended, of which its last words are."""
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        print(more if isinstance(more, str) else more.stdout[-3000:] + more.stderr[-3000:])


def end():
    print(f"{len(wrong)} wrong")
    sys.exit(1 if wrong else 0)
