# SPDX-License-Identifier: Apache-2.0
"""check_examples_run.py CHECKOUT: calls examples/run as a newcomer does, from another folder and with file names relative
to it. The first call builds; a later one makes nothing anew; with all defaults the loss falls. How long each took is
printed, and decides nothing.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = ROOT / "build/examples"
MADE = [BUILD / ".configured", BUILD / "build.ninja", BUILD / "examples/train_gpt/train_gpt"]
wrong = []


def expect(condition, what):
    print(("ok: " if condition else "WRONG: ") + what, flush=True)
    if not condition:
        wrong.append(what)


def call(folder, *flags):
    begin = time.monotonic()
    done = subprocess.run([ROOT / "examples/run", *flags], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    what = " ".join(["examples/run", *flags])
    print(f"{what}: {time.monotonic() - begin:.1f} s")
    expect(done.returncode == 0, f"{what} ends well")
    if done.returncode != 0:
        print(done.stdout[-3000:] + done.stderr[-3000:])
        sys.exit(1)
    return done.stdout


def when_made():
    return [path.stat().st_mtime_ns for path in MADE]


def main():
    with tempfile.TemporaryDirectory(prefix="shardkit-newcomer-") as name:
        folder = pathlib.Path(name)
        first = call(folder, "--plan")
        made = when_made()
        expect(call(folder, "--plan") == first, "a second call prints the same plan")
        expect(when_made() == made, "a second call configures, compiles and links nothing")

        call(folder, "--json", "result.json", "--plot", "loss.svg")
        expect(when_made() == made, "nor does one that trains")
        expect({path.name for path in folder.iterdir()} == {"result.json", "loss.svg"},
               "both files lie in the folder of the caller")
        if wrong:
            sys.exit(1)
        expect("<svg" in (folder / "loss.svg").read_text(encoding="utf-8"), "the plot is a picture")
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        losses = result["losses"]
        print(f"losses {losses[0]:.3f} and {losses[-1]:.3f}, {result['tokens_per_second']:.0f} tokens/s")
        expect(len(losses) == result["steps"] and all(map(math.isfinite, losses)), "every step has a finite loss")
        expect(losses[0] - losses[-1] > 1.0, "the loss falls by more than 1 nat")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
