# SPDX-License-Identifier: Apache-2.0
"""soak_mpi.py JOB [--faults N] [--from SEED] [--seed SEED --ranks N] [--times]
[--seconds N] -- LAUNCHER...: faults that seeds choose, on 2 to 4
processes, over a small trainer. A run must end with the bits of the faultless one, or the job ends soon with an error that
names what was planted. Prints the counts, and for each run that goes wrong its seed and ranks, with which it does so again.
--times prints how long each kind takes from the fault to the end of the job."""
import argparse
import collections
import re
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds from a fault to the end of the job; the deadlines are 20 s, and 0.3 s where a rank hangs
SEEDS_OF_A_JOB = 20
RANKS = (2, 3, 4)
# What the job must say of a fault of rank R.
TOLD = {
    "error": r"rank R of \d+ failed: planted: rank R: error",
    "leave": r"rank R returned before rank",
    "hang": r"rank R has not entered",
    "kill": r"the process of rank R has ended|signal 9|Killed",
    "wrong_data": r"rank \d+ of \d+ failed: ",
    "out_of_memory": r"rank R of \d+ failed: .*(no memory for|bad_alloc)",
}


def run_job(options, launcher, begin, end, ranks):
    """The lines of one job, each with when it came, its status and when it ended."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher, "-n", str(ranks), options.job, str(begin), str(end), folder]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace") as job:
            try:
                output = job.communicate(timeout=LIMIT + 10 * (end - begin))[0]
            except subprocess.TimeoutExpired:
                job.kill()
                return job.communicate()[0], None, time.time()
    return output, job.returncode, time.time()


def judge(said, ranks, ended, status):
    """What became of one seed, and what is wrong with it; `said` are the job's words since it began."""
    struck = re.findall(r"^seed \d+ struck ([\d.]+) (\w+): rank (\d+)", said, re.MULTILINE)
    kinds = " and ".join(dict.fromkeys(kind for _, kind, _ in struck)) or "nothing"
    verdicts = re.findall(r"^seed \d+ rank \d+: (\w+)", said, re.MULTILINE)
    if len(verdicts) == ranks:
        if set(verdicts) == {"same"}:
            return f"{kinds}: the bits of the faultless run", ""
        seen = "wrong_data" in kinds and "documented" in verdicts
        return f"{kinds}: other numbers, unseen as documented", "" if seen else "other numbers, which nothing has found"
    if status is None:
        return f"{kinds}: no end", f"no end within {LIMIT} s"
    if not struck:
        return "nothing: an error", "an error without a fault"
    when, kind, rank = struck[-1]
    if kind not in TOLD or not re.search(TOLD[kind].replace("R", rank), said):
        return f"{kinds}: an error", "the job does not say what was planted"
    if status == 0:
        return f"{kinds}: an error", "the job's status is 0"
    took = ended - float(when)
    return f"{kinds}: an error", f"{took:.0f} s until the end" if took > LIMIT else ""


def main():
    launcher = sys.argv[sys.argv.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--faults", type=int, default=10000)
    parser.add_argument("--from", dest="begin", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further job after so long")
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args(sys.argv[1:sys.argv.index("--")])
    begin = options.begin if options.seed is None else options.seed
    last = begin + (options.faults if options.seed is None else 1)
    counts, times, wrong, jobs, first, started = collections.Counter(), collections.defaultdict(list), 0, 0, begin, time.time()
    while begin < last and time.time() - started < options.seconds:
        ranks = options.ranks or RANKS[jobs % len(RANKS)]
        end = min(begin + SEEDS_OF_A_JOB, last)
        output, status, ended = run_job(options, launcher, begin, end, ranks)
        jobs += 1
        parts = re.split(r"(?m)^(?=seed \d+ begins: )", output)
        if len(parts) == 1:
            sys.exit(f"WRONG: a job that does not begin ended with {status}:\n{output[-3000:]}")
        for i, said in enumerate(parts[1:]):
            # The processes' lines mix: a rank may say of a run that the next one has begun.
            seed = int(re.match(r"seed (\d+)", said)[1])
            of_it = "".join(line + "\n" for line in output.splitlines() if re.match(rf"seed {seed} ", line))
            of_it += said if i == len(parts) - 2 else ""
            verdicts = set(re.findall(rf"(?m)^seed {seed} rank (\d+): ", output))
            if i == len(parts) - 2 and len(verdicts) == ranks:
                of_it = of_it[:len(of_it) - len(said)]
            kind, what = judge(of_it, ranks, ended, status)
            counts[kind] += 1
            if found := re.findall(r"struck ([\d.]+) (\w+):", of_it) if kind.endswith("an error") else None:
                times[found[-1][1]].append(ended - float(found[-1][0]))
            if what or options.seed is not None:
                wrong += 1 if what else 0
                print(f"{'WRONG' if what else 'ok'}: --seed {seed} --ranks {ranks}: {what or kind}\n{of_it[-3000:]}", flush=True)
        begin = seed + 1
    for kind, runs in sorted(counts.items()):
        print(f"{runs:8}  {kind}")
    if options.times:
        for kind, seconds in sorted(times.items()):
            seconds.sort()
            print(f"{kind:14} median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s of {len(seconds)}")
    print(f"{begin - first} seeds in {jobs} jobs, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
