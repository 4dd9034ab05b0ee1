# SPDX-License-Identifier: Apache-2.0
"""check_hashes.py PROGRAM: files of --hashes are equal for runs of equal bits, compare_hashes.py names where others part,
and --verify-every changes nothing in a run whose ranks agree.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
COMPARE = pathlib.Path(__file__).resolve().parents[2] / "examples/train_gpt/compare_hashes.py"
SMALL = ["--batch", "4", "--sequence", "8", "--layers", "2", "--width", "8", "--heads", "2"]
wrong = []


def run(folder, *flags, steps=4):
    return subprocess.run([PROGRAM, *SMALL, "--steps", str(steps), *flags], cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False)


def expect(condition, what, done=None):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        if done is not None:
            print(((done.stdout or b"")[-3000:] + (done.stderr or b"")[-3000:]).decode(errors="replace"))


def compared(folder, first, second):
    done = subprocess.run([sys.executable, "-B", COMPARE, first, second], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def expect_compared(folder, first, second, status, text):
    got = compared(folder, first, second)
    expect(got == (status, text), f"{first} and {second}: {' | '.join(text.splitlines())} (got {got})")


def check_equal(folder):
    """Policies of one mesh have equal bits, and so has a run that goes on from a checkpoint."""
    flags = {"full.tsv": [], "none.tsv": ["--policy", "no_shard"], "release.tsv": ["--release", "on"], "free.tsv": ["--clip", "0"]}
    for name, more in flags.items():
        done = run(folder, "--mesh", "2x1x1", "--hashes", name, *more)
        expect(done.returncode == 0, f"a run with --hashes {name}", done)
    lines = (folder / "full.tsv").read_text(encoding="utf-8").splitlines()
    # Before the first step two states and the parameters of four groups; after each step their gradients too.
    expect(lines[0] == "step\tof\tgroup\tkind\thash" and len(lines) == 1 + 12 + 4 * 16, "a line for each hash")
    expect(all(re.fullmatch(r"\d\t(gradients|states|parameters)\t[\w.]+\t[\w ]+\t[0-9a-f]{16}", line) for line in lines[1:]), "of five fields")
    expect(len({line.split("\t")[4] for line in lines if "\tparameters\tblocks.1\t" in line}) == 5, "parameters change with each step")
    expect_compared(folder, "full.tsv", "none.tsv", 0, "equal: 76 hashes of steps 0 to 4\n")
    expect_compared(folder, "free.tsv", "release.tsv", 0, "equal: 60 hashes of steps 0 to 4\n")
    expect(run(folder, "--mesh", "2x1x1", "--save", "saved", steps=2).returncode == 0, "a run of two steps")
    done = run(folder, "--mesh", "2x1x1", "--resume", "saved", "--policy", "shard_grad_op", "--hashes", "resumed.tsv")
    expect(done.returncode == 0, "that goes on", done)
    expect_compared(folder, "full.tsv", "resumed.tsv", 0, "equal: 44 hashes of steps 2 to 4\n")


def hash_of(folder, name, *fields):
    begin = "\t".join(fields) + "\t"
    return next(line.removeprefix(begin) for line in (folder / name).read_text(encoding="utf-8").splitlines() if line.startswith(begin))


def check_differing(folder):
    for name, flags in (("a.tsv", []), ("b.tsv", ["--lr", "0.002"]), ("c.tsv", ["--seed", "2"]), ("d.tsv", ["--layers", "1"])):
        more = [] if name == "d.tsv" else ["--layers", "2"]
        done = subprocess.run([PROGRAM, "--batch", "4", "--sequence", "8", "--width", "8", "--heads", "2", "--steps", "3", "--hashes", name,
                               *more, *flags], cwd=folder, capture_output=True, check=False)
        expect(done.returncode == 0, f"a run with {' '.join(flags) or 'defaults'}", done)

    def differs(name, step, of, group, kind, differing, total, before):
        ours, theirs = (hash_of(folder, each, step, of, group, kind) for each in ("a.tsv", name))
        expect_compared(folder, "a.tsv", name, 1, f"step {step}: {of} of {group} ({kind}) differs: {ours} and {theirs}\n"
                                                  f"{differing} of the step's {total} hashes differ; {before}\n")

    # With another learning rate the first gradients and states are the same, and the parameters that they make are not.
    differs("b.tsv", "1", "parameters", "embedding", "parameter", 4, 16, "all are equal up to step 0")
    # The head's first values do not depend on the seed.
    differs("c.tsv", "0", "parameters", "embedding", "parameter", 3, 12, "it is the first step that both have")
    # One hash alone, of the last group.
    text = (folder / "a.tsv").read_text(encoding="utf-8")
    old = hash_of(folder, "a.tsv", "2", "states", "head", "exp_avg_sq")
    (folder / "e.tsv").write_text(text.replace(f"2\tstates\thead\texp_avg_sq\t{old}", f"2\tstates\thead\texp_avg_sq\t{'0' * 16}"), encoding="utf-8")
    differs("e.tsv", "2", "states", "head", "exp_avg_sq", 1, 16, "all are equal up to step 1")
    # What a run had written when it was killed.
    (folder / "f.tsv").write_text(text[:text.index("\n3\tstates") + 5], encoding="utf-8")
    expect_compared(folder, "a.tsv", "f.tsv", 0, "equal: 48 hashes of steps 0 to 3\n")
    (folder / "g.txt").write_text("abc\n", encoding="utf-8")
    expect_compared(folder, "a.tsv", "g.txt", 2, "compare_hashes: g.txt: the first line is not that of a file of train_gpt --hashes\n")
    (folder / "h.tsv").write_text(text.replace("\t" + old, ""), encoding="utf-8")
    expect(compared(folder, "h.tsv", "a.tsv")[0] == 2, "a line without its hash is refused")
    status, said = compared(folder, "a.tsv", "d.tsv")
    expect(status in (1, 2), f"another model is not equal: {said}")
    expect(compared(folder, "a.tsv", "no.tsv")[0] == 2, "a file that is not there")


def check_verified(folder):
    """Replicas of every kind agree, and a run that compares them prints and writes what one that does not does."""
    for flags in (["--mesh", "3x1x1", "--batch", "6", "--policy", "no_shard"], ["--mesh", "2x2x1", "--sequence-parallel", "on"],
                  ["--mesh", "4x1x1", "--policy", "hybrid_shard:2", "--dtype", "bf16", "--master", "split", "--states", "block8"],
                  ["--mesh", "2x1x2", "--policy", "shard_optimizer", "--optimizer", "muon", "--microbatches", "2"]):
        reports = []
        small = SMALL[2:] if "--batch" in flags else SMALL
        for more in ([], ["--verify-every", "1"]):
            done = subprocess.run([PROGRAM, *small, "--steps", "3", *flags, *more, "--json", "a.json"], cwd=folder, capture_output=True,
                                  timeout=60, check=False)
            expect(done.returncode == 0, f"a run with {' '.join(flags + more)}", done)
            reports.append(json.loads((folder / "a.json").read_text(encoding="utf-8")))
        same = ("losses", "grad_norms", "collectives_by_axes", "allocations_per_steady_step")
        expect(all(reports[0][key] == reports[1][key] for key in same), "comparing replicas changes no number")
    done = run(folder, "--hashes", "/dev/full")
    expect(done.returncode == 1 and b"train_gpt: error: --hashes '/dev/full': cannot be written" in done.stderr, "a full disk is an error", done)
    done = run(folder, "--hashes", "a.json", "--json", "a.json")
    expect(done.returncode == 2 and b"expected another file" in done.stderr, "one file for two results is refused", done)


def check_slices(folder):
    """With --slices the files are equal on any number of ranks, and of a step that one rank makes again."""
    flags = ["--batch", "8", *SMALL[2:], "--slices", "4"]

    def sliced(*more, steps="4"):
        return subprocess.run([PROGRAM, *flags, "--steps", steps, *more], cwd=folder, capture_output=True, timeout=60, check=False)

    for name, more in (("a.tsv", ["--mesh", "4x1x1", "--save", "saved", "--save-every", "1"]), ("b.tsv", ["--mesh", "2x1x1", "--policy", "no_shard"]),
                       ("c.tsv", ["--mesh", "1x1x1", "--policy", "shard_optimizer"])):
        done = sliced("--hashes", name, *more)
        expect(done.returncode == 0, f"a run of slices {' '.join(more)}", done)
    # Of each step four slices of four groups too.
    expect_compared(folder, "a.tsv", "b.tsv", 0, "equal: 140 hashes of steps 0 to 4\n")
    expect_compared(folder, "a.tsv", "c.tsv", 0, "equal: 140 hashes of steps 0 to 4\n")
    lines = (folder / "a.tsv").read_text(encoding="utf-8").splitlines()
    expect(sum(line.startswith("4\tslice 2\t") and not line.endswith("\t" + "0" * 16) for line in lines) == 4, "a slice of four groups")
    for before in ("3", "2"):
        done = sliced("--mesh", "1x1x1", "--hashes", f"from{before}.tsv", "--resume", f"saved/step-0000000{before}")
        expect(done.returncode == 0, f"the steps behind step {before} again", done)
    expect_compared(folder, "a.tsv", "from3.tsv", 0, "equal: 44 hashes of steps 3 to 4\n")
    # From other parameters than the run's it is another one.
    text = (folder / "from2.tsv").read_text(encoding="utf-8")
    (folder / "other.tsv").write_text("".join(line.replace("3", "4", 1) + "\n" for line in text.splitlines()
                                              if line.startswith(("step", "3\t"))), encoding="utf-8")
    expect(compared(folder, "a.tsv", "other.tsv")[1].startswith("step 4: slice 0 of embedding (gradient) differs: "), "has other hashes")


def main():
    for check in (check_equal, check_differing, check_slices, check_verified):
        with tempfile.TemporaryDirectory(prefix="shardkit-train-gpt-") as name:
            check(pathlib.Path(name).resolve())
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
