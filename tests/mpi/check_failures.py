# SPDX-License-Identifier: Apache-2.0
"""check_failures.py PROGRAM -- LAUNCHER...: how jobs end when a rank fails: soon, with a status that is not zero, and
with a text that says what happened. A job of which every process is killed leaves no memory behind."""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:]
LIMIT = 45  # seconds: before the timeout of the jobs' own, after which a rank would give up waiting
AT_A_TIME = 3  # jobs: most of them wait

RANKS = 3
# A launcher that ends no process because another one was killed, as srun without --kill-on-bad-exit. Its status is its
# own: that of Open MPI is 0.
MPICH = "mpich" in LAUNCHER[0]
RECOVERING = [*LAUNCHER, "-disable-auto-cleanup" if MPICH else "--enable-recovery"]
ENDED = [] if MPICH else ["the process of rank 1 has ended"]
FOUND_OUT = [*ENDED, "all_gather over world"] if ENDED else []
FOUND_OUT_REDUCING = [*ENDED, "reduce_scatter over world"] if ENDED else []
LEFT_REFUSED = [*ENDED, *(f"rank {rank}: the destination is refused, the source is as it was" for rank in (0, 2)
                          if ENDED)]
LEFT = ("rank 1 of 3 failed: the step leaves its schedule at operation 1: unshard of 'layers.2' called, expected unshard "
        "of 'layers.0' in microbatch 0 ... failing_job.cpp:")
LATE = "not every rank has made this call within 1000 ms: "
# What a text may say besides where the machine has not let another rank come either.
ALSO = {"rank 1 has": r"(rank 1 has|ranks [\d, -]*\b1\b[\d, -]* have|ranks 0-2 have)"}
# name, further arguments, expected in the output, whether the job succeeds. Every text is expected, with RANK in it
# for each rank; its parts around ' ... ' in one line. A limit of time is only what ends a wait: what is compared is who is
# named.
CASES = [
    ("nothing", [], [], True),
    ("nothing", ["overlap"], [], True),
    ("nothing", ["overlap", "multiple"], [], True),
    ("late", [], [], True),
    ("throw", [], ["rank 1 of 3 failed: planted"], False),
    ("throw", ["overlap"], ["rank 1 of 3 failed: planted"], False),
    ("return", ["each_step"], ["rank 1 returned before rank"], False),
    ("hide", ["each_step"], ["this call for 'layer' parameters is made with memory that the ranks of its host do not see"],
     False),
    ("leave_schedule", [], [LEFT], False),
    ("leave_schedule", ["overlap"], [LEFT], False),
    ("leave_schedule", ["overlap", "multiple", "each_step"], [LEFT], False),
    ("throw_int", [], ["rank 1 of 3 failed: an exception that is no std::exception"], False),
    ("return", [], ["rank 1 returned before rank", "failing_job.cpp:"], False),
    ("return", ["overlap"], ["rank 1 returned before rank"], False),
    ("return", ["overlap", "multiple"], ["rank 1 returned before rank"], False),
    ("no_message", [], ["rank 1 returned before rank"], False),
    *[("too_late", further, [LATE + "rank 1 has not entered it"], False) for further in ([], ["overlap"], ["messages"])],
    ("too_late", ["hosts"], [LATE + "all ranks of this host have entered it"], False),
    ("late_to_message", [], ["receive over world at ... " + LATE + "rank 1 has not entered it"], False),
    ("late_to_world", [], ["rank RANK caught: mpi: World at ... not every rank has made this call within 5000 ms",
                             "rank 0 caught: ... 5000 ms: of this host ranks 0, 2 are here"], False),
    ("late_to_split", [], ["split over world at ... " + LATE + "rank 1 has not entered it"], False),
    *[("late_to_finish", further, ["finish at ... within 5000 ms: rank 1 has not returned"], False)
      for further in ([], ["overlap"])],
    ("evaluation", [], [], True),
    ("evaluation", ["overlap", "messages"], [], True),
    ("brief_phase", [], [LATE + "rank 1 has not entered it"], False),
    ("kill", [], ["so far so good"], False),
    ("exit", [], ["so far so good"], False),
    ("mesh", [], ["rank RANK caught: mesh dp=4 tp=1 cp=1 has 4 ranks, but this MPI job has 3 processes; start it with "
                  "mpirun -n 4"], False),
    ("uncaught", [], ["of 3 failed: mesh dp=4 tp=1 cp=1 has 4 ranks, but this MPI job has 3 processes"], False),
    ("no_environment", [], ["MPI is not initialised", "mpi::Environment"], False),
    ("second_environment", [], ["rank RANK caught: ... MPI is initialised already"], False),
    ("low_level", [], [], True),
    ("low_level", ["overlap"], ["rank RANK caught: ... Options::overlap needs MPI_THREAD_SERIALIZED, MPI was "
                                "initialised with MPI_THREAD_SINGLE"], False),
    ("globals", [], [], True),
    ("globals", ["overlap"], [], True),
    ("exit_in_main", [], [], False),
    ("exit_outside", [], ["rank 1 of 3: an mpi::World ended without finish()"], False),
    ("exit_outside", ["overlap"], ["rank 1 of 3: an mpi::World ended without finish()"], False),
    ("exit_in_a_window", [], ["so far so good", "'layer' ended or was assigned to while 1 window(s)"], False),
    ("no_finish", [], ["an mpi::World ended without finish()"], False),
    ("plain_init", [], ["rank RANK: the sum is 3"], True),
]
# The same where the launcher ends nobody else: what the other ranks say of the one that was killed. (MPICH's own ends
# its job after all, soon, and may do so before they say it.)
ORPHANED = [
    ("kill", ["messages"], ENDED),
    ("kill", ["messages", "overlap"], ENDED),
    ("kill_a_reader", [], FOUND_OUT),
    ("kill_a_reader", ["each_step"], FOUND_OUT),
    ("kill_a_reader", ["overlap"], FOUND_OUT),
    ("kill_a_reducer", ["overlap"], FOUND_OUT_REDUCING),
    ("kill_in_reshard", [], LEFT_REFUSED),
    ("kill_behind_the_last_call", [], ["finish at ... " + text for text in ENDED]),
    ("kill_behind_the_last_call", ["messages"], ["finish at ... " + text for text in ENDED]),
    ("kill_in_split", [], [] if MPICH else ["split over world at ... MPI_Comm_split is not over after 5000 ms"]),
    ("kill_at_mpis_end", [], []),
]
STACK_TRACES = ("received signal", "terminate called", "backtrace")
# Memory in use would be freed: ended by abort(), of which MPI prints where it was called.
ABORTS = ("exit_in_a_window",)


def missing_in(output, texts):
    for text in texts:
        for rank in range(RANKS) if "RANK" in text else [None]:
            parts = text.replace("RANK", str(rank)).split(" ... ")
            patterns = [re.escape(part) for part in parts]
            for said, also in ALSO.items():
                patterns = [pattern.replace(re.escape(said), also) for pattern in patterns]
            if not any(all(re.search(pattern, line) for pattern in patterns) for line in output.splitlines()):
                yield " ... ".join(parts)


def names_left_by_all_killed():
    """Kills every process of a job at once, launcher included; returns what is new in the folders of shared memory, but
    for what MPI itself puts there for its messages."""
    def names():
        return {str(path) for folder in ("/dev/shm", "/dev/hugepages") if os.path.isdir(folder)
                for path in pathlib.Path(folder).iterdir()
                if not re.match(r"vader_segment\.|mpich_shar_tmp|pmix|mpich", path.name)}

    before = names()
    with subprocess.Popen([*LAUNCHER, "-n", str(RANKS), PROGRAM, "read_for_ever"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        processes, output = {}, ""
        for line in job.stdout:
            output += line
            if found := re.search(r"process (\d+) of rank (\d+) gathers", line):
                processes[found[2]] = int(found[1])
            if len(processes) == RANKS:
                break
        mapped = [len(re.findall(r"memfd:shardkit", pathlib.Path(f"/proc/{process}/maps").read_text(encoding="utf-8")))
                  for process in processes.values()]
        for process in (job.pid, *processes.values()):
            os.kill(process, signal.SIGKILL)
    if mapped != [RANKS] * RANKS:
        return [f"expected {RANKS} windows in each of {RANKS} processes, found {mapped}", output]
    return sorted(names() - before)


def try_job(launcher, name, further, texts, succeeds):
    """Whether a job ends as expected, and what is to be said of it."""
    command = [*launcher, "-n", str(RANKS), PROGRAM, name, *further]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=LIMIT, check=False)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as expired:
        status, output = None, (expired.stdout or b"").decode(errors="replace")
    took = time.monotonic() - begin
    missing = list(missing_in(output, texts))
    traces = [sign for sign in STACK_TRACES if sign in output.lower() and name not in ABORTS]
    good = status is not None and succeeds in (None, status == 0) and not missing and not traces
    said = f"{'ok' if good else 'WRONG'}: {name} {' '.join(further)}: status {status} after {took:.1f} s"
    if not good:
        expected = "an end" if succeeds is None else "success" if succeeds else "failure"
        said += (f"\n  expected {expected} with {texts}; missing {missing}, unwanted {traces}; output:\n  "
                 + output[:2000].replace("\n", "\n  "))
    return good, said


def main():
    wrong = 0
    jobs = [(LAUNCHER, *case) for case in CASES] + [(RECOVERING, *case, None) for case in ORPHANED]
    if left := names_left_by_all_killed():
        wrong += 1
        print("WRONG: all processes killed:", *left)
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for good, said in pool.map(lambda job: try_job(*job), jobs):
            wrong += not good
            print(said, flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
