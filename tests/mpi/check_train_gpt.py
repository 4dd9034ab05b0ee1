# SPDX-License-Identifier: Apache-2.0
"""check_train_gpt.py PROGRAM [--configurations] -- LAUNCHER...: train_gpt on processes gives what it gives on threads, bit
for bit, prints once, and refuses bad input once; with --configurations on more meshes, policies, schedules and hosts."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:]
SMALL = ["--steps", "4", "--sequence", "16", "--layers", "2", "--width", "16", "--heads", "2", "--batch", "12"]
wrong = []


def run(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def expect(condition, what, done):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        print(done.stdout[-3000:] + done.stderr[-3000:])


def check_training(folder, ranks, flags, mesh=None):
    mesh = mesh or f"{ranks}x1x1"
    what = f"{ranks} ranks {mesh} {' '.join(flags)}"
    # What auto follows depends on whether processes have a processor to spare.
    flags = flags if "--schedule" in flags else [*flags, "--schedule", "none"]
    results = {}
    for engine, launcher in (("threads", []), ("mpi", [*LAUNCHER, "-n", str(ranks)])):
        path = folder / f"{engine}.json"
        done = run([*launcher, PROGRAM, "--engine", engine, "--mesh", mesh, *SMALL, *flags, "--json", path])
        expect(done.returncode == 0, f"{what}: {engine} ends well", done)
        expect(done.stdout.count("on the wire per rank and step") == 1, f"{what}: {engine} prints once", done)
        results[engine] = json.loads(path.read_text(encoding="utf-8"))
    ours, theirs = results["mpi"], results["threads"]
    alike = ours["schedule"]["follows"] == theirs["schedule"]["follows"]
    expect(alike or "auto" in flags, f"{what}: the same schedule", done)
    for key in ("losses", "grad_norms", "world", "policy", *(["planned_bytes_per_rank"] if alike else [])):
        expect(ours[key] == theirs[key], f"{what}: the same {key}", done)
    expect(ours["engine"] == "mpi" and ours.keys() == theirs.keys(), f"{what}: the same members", done)
    for report in (ours, theirs):
        timed = report.get("timed_steps")
        expect(timed is None if report["schedule"]["follows"] == "none" else timed["steps"] == 2
               and 0 < timed["exposed_seconds"] < timed["seconds"] and timed["communication_seconds"] > 0,
               f"{what}: times of {report['engine']} {timed}", done)
    if not alike:
        return
    for verb in ("all_gather", "reduce_scatter"):
        of_verb = [{axes: row.get(verb) for axes, row in report["collectives_by_axes"].items()} for report in (ours, theirs)]
        expect(of_verb[0] == of_verb[1], f"{what}: the same {verb}", done)
    # Staging memory is the World's, and an engine keeps some KiB for its groups, threads that defer calls, as they do for
    # gathers ahead, some more; the rest is what was planned.
    kept = (16 if "prefetch" in theirs["schedule"]["follows"] else 8) << 10
    expect(abs(ours["peak_bytes_per_rank"] - theirs["peak_bytes_per_rank"]) < kept,
           f"{what}: the same memory", done)


def check_hosts(folder):
    """4 processes, 2 to a simulated host: planned bytes between hosts are those of the engine."""
    path = folder / "hosts.json"
    command = [*LAUNCHER, "-n", "4", PROGRAM, "--engine", "mpi", *SMALL[:6], "--width", "64", "--heads", "2", "--batch",
               "12", "--json", path]
    for flags in (["--policy", "full_shard"], ["--policy", "no_shard", "--microbatches", "2"],
                  ["--policy", "hybrid_shard:2"], ["--mesh", "2x1x2", "--policy", "shard_optimizer"],
                  ["--mesh", "1x2x2", "--sequence-parallel", "on"], ["--mesh", "1x1x4", "--context", "gather"]):
        what = f"2 ranks a host, {' '.join(flags)}"
        done = run([*command, "--ranks-per-host", "2", *flags])
        expect(done.returncode == 0, f"{what}: ends well", done)
        report = json.loads(path.read_text(encoding="utf-8"))
        expect(report["collectives_by_axes"] == report["planned_collectives_by_axes"],
               f"{what}: measured and planned collectives agree", done)
        crossing = report["planned_bytes_between_hosts"]
        expect(any(crossing.values()), f"{what}: hosts talk to each other", done)
        row = r"^  \w+ +[\w ]+? +(\d+ calls +\S+ \S+) +(\d+ calls +\S+ \S+) +(\S+ \S+) between hosts$"
        rows = re.findall(row, done.stdout, re.MULTILINE)
        expect(rows and all(row[0] == row[1] for row in rows)
               and len(re.findall(r" calls +\S+ \S+ +\S+ \S+ between hosts$", done.stdout, re.MULTILINE)) == 2 * len(rows),
               f"{what}: and in the tables", done)
        if flags == ["--policy", "full_shard"]:
            bytes_moved = {verb: row["bytes"] for verb, row in report["collectives_by_axes"]["dp"].items()}
            expect(3 * crossing["reduce_scatter"] == 2 * bytes_moved["reduce_scatter"],
                   f"{what}: of 3 addends 2 come from the other host", done)
            # A rank's part of the head's two vectors is so small that it goes to every rank.
            head = 2 * 64 * 4 // 4
            expect(crossing["all_gather"] == (bytes_moved["all_gather"] - 3 * head) // 3 + 2 * head,
                   f"{what}: of 3 parts 1 does", done)
        if flags == ["--policy", "hybrid_shard:2"]:
            expect(crossing["all_gather"] == crossing["reduce_scatter"] == 0, f"{what}: shards stay in a host", done)
    done = run([*command, "--policy", "full_shard"])
    report = json.loads(path.read_text(encoding="utf-8"))
    expect(done.returncode == 0 and "between hosts" not in done.stdout
           and not any(report["planned_bytes_between_hosts"].values()), "one host is as it is", done)


def check_refused(flags, text, ranks=3):
    done = run([*LAUNCHER, "-n", str(ranks), PROGRAM, "--engine", "mpi", *flags])
    expect(done.returncode != 0 and done.stderr.count(text) == 1, f"{' '.join(flags)}: refused once: {text}", done)


def check_models_that_differ():
    """Each process is started with its own flags, as after a mistake in a launch script."""
    command = [*LAUNCHER]
    for width in ("16", "32"):
        command += [*([":"] if width == "32" else []), "-n", "1", PROGRAM, "--engine", "mpi", *SMALL, "--batch", "8",
                    "--width", width]
    done = run([flag for flag in command])
    expect(done.returncode != 0 and "train_gpt: error" in done.stderr, "processes with other models are refused", done)


def check_interrupted(folder):
    """Ctrl-C ends mpirun, which leaves its processes the time that examples/run asks for."""
    version = run([LAUNCHER[0], "--version"]).stdout
    if "OpenRTE" not in version and "Open MPI" not in version:
        print("left out, no Open MPI: an interrupted job")
        return
    path = folder / "interrupted.json"
    with subprocess.Popen([*LAUNCHER, "-n", "2", PROGRAM, "--engine", "mpi", *SMALL[2:], "--steps", "100000000", "--json",
                           path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "OMPI_MCA_odls_base_sigkill_timeout": "3"}) as started:
        next((line for line in started.stdout if "  loss " in line), None)
        started.send_signal(signal.SIGINT)
        done = subprocess.CompletedProcess([], 0, *started.communicate(timeout=60))
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    expect(report.get("interrupted") and report["losses"], "an interrupted job writes what it reached", done)


def children_of(process):
    return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()


def ranks_below(process):
    """The processes of the program: a launcher may start them by way of another."""
    children = children_of(process)
    own = [int(child) for child in children
           if "train_gpt" in pathlib.Path(f"/proc/{child}/comm").read_text(encoding="utf-8")]
    return own or [rank for child in children for rank in ranks_below(child)]


def check_ended_and_saved(folder):
    """A signal to one process ends all after one step, which is saved, and with 0."""
    saves = folder / "saves"
    flags = [*SMALL[2:], "--engine", "mpi", "--save", saves, "--json"]
    with subprocess.Popen([*LAUNCHER, "-n", "2", PROGRAM, *flags, folder / "a.json", "--steps", "100000000"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        next((line for line in started.stdout if line.startswith("step ")), None)
        os.kill(ranks_below(started.pid)[-1], signal.SIGTERM)
        output = started.communicate(timeout=60)
        done = subprocess.CompletedProcess([], started.returncode, *output)
    steps = len(json.loads((folder / "a.json").read_text(encoding="utf-8"))["losses"]) if done.returncode == 0 else 0
    expect(done.returncode == 0 and steps > 0 and done.stderr.count(f"interrupted by SIGTERM after step {steps} of") == 1,
           "a signal to one process ends all with 0", done)
    after = run([PROGRAM, *SMALL[2:], "--mesh", "2x1x1", "--resume", saves, "--steps", str(steps + 2), "--json",
                 folder / "b.json"])
    ours = run([*LAUNCHER, "-n", "2", PROGRAM, *flags, folder / "c.json", "--resume", saves, "--steps", str(steps + 2)])
    reports = [json.loads((folder / name).read_text(encoding="utf-8")) for name in ("b.json", "c.json")]
    expect(after.returncode == ours.returncode == 0 and reports[0]["losses"] == reports[1]["losses"]
           and reports[0]["first_step"] == reports[1]["first_step"] == steps and len(reports[0]["losses"]) == 2,
           "threads resume what processes have saved, as processes do", ours)


def check_configurations(folder):
    for policy in ("no_shard", "shard_optimizer", "shard_grad_op"):
        check_training(folder, 3, ["--policy", policy, "--microbatches", "2"])
    check_hosts(folder)
    check_training(folder, 2, ["--policy", "full_shard", "--dtype", "bf16"])
    check_training(folder, 1, ["--policy", "full_shard"])
    check_training(folder, 2, ["--schedule", "prefetch", "--microbatches", "2"])
    check_training(folder, 2, ["--schedule", "auto", "--policy", "shard_grad_op"])
    check_training(folder, 2, ["--schedule", "auto", "--policy", "full_shard"])
    check_training(folder, 4, ["--sequence-parallel", "on", "--context", "ring"], "1x2x2")
    check_training(folder, 4, ["--policy", "no_shard", "--context", "gather", "--microbatches", "3"], "2x1x2")


def check_program(folder):
    check_training(folder, 3, ["--policy", "full_shard", "--microbatches", "2"])
    check_training(folder, 4, ["--policy", "hybrid_shard:2", "--dtype", "fp64", "--optimizer", "sgd"])
    check_models_that_differ()
    check_interrupted(folder)
    check_ended_and_saved(folder)
    check_refused(["--mesh", "2x1x1"], "this job of --engine mpi has 3 processes: expected mpirun -n 2")
    check_refused(["--batch", "16"], "expected a multiple of the 3 data-parallel ranks")
    check_refused(["--batch", "12", "--text", str(folder / "missing")], "missing")
    check_refused(["--batch", "12", "--json", str(folder / "no/such/folder.json")], "folder.json")
    check_refused(["--dtype", "fp8"], "fp8")
    # The process that prints and writes fails alone, before the first step: the others do not wait for it.
    check_refused(["--batch", "12", *SMALL[:-2], "--schedule-out", "/dev/full"], "writing '/dev/full' failed: No space left")
    diverged = folder / "diverged.json"
    done = run([*LAUNCHER, "-n", "2", PROGRAM, "--engine", "mpi", *SMALL, "--lr", "1e30", "--json", diverged])
    expect(done.returncode == 1 and "step 2: the loss is nan" in done.stderr and not diverged.exists(),
           "a run that diverges fails and writes nothing", done)
    done = run([*LAUNCHER, "-n", "2", PROGRAM, "--engine", "mpi", "--mesh", "64x1x1", "--batch", "64", "--plan"])
    expect(done.returncode == 0 and done.stdout.count("memory per rank, planned") == 1, "--plan of any mesh", done)
    done = run([*LAUNCHER, "-n", "2", PROGRAM, "--engine", "mpi", "--help"])
    expect(done.returncode == 0 and done.stdout.count("--microbatches") == 1, "--help once", done)


def main():
    with tempfile.TemporaryDirectory(prefix="shardkit-mpi-") as name:
        (check_configurations if "--configurations" in sys.argv else check_program)(pathlib.Path(name))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
