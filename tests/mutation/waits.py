# SPDX-License-Identifier: Apache-2.0
"""waits.py [--compiler g++] [--jobs N] [--target NAME]: takes away every wait of a stream for another, and of the host for the streams of
containers and schedules, one at a time, and builds and runs a trainer, ring attention, or sums on the NCCL engine over
the CUDA stand-in, a measured step or the ends of what streams use on lazy streams, or calls on the streams of threads,
which must fail. Where Open MPI is found, takes away what keeps the lanes of two processes
apart and what they wait for, too.
Prints site and what killed the mutant; fails on a survivor.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from run import ROOT, Mutant, Target, package_flags, report

TESTS = ROOT / "tests"
STANDIN = TESTS / "standin"
NOTHING = "static_cast<void>(0);"
# Waits that nothing can observe: file and statement, and why.
EXCUSED = {
    ("gradient_norms.hpp", "reduction.wait(stream.record());"):
        "behind copy_in, in which the engines that are here wait for that stream",
}
# Of a stream, or of a store whose `wait` makes the compute stream wait; Window's own `wait` returns something.
WAIT = re.compile(r"(?<=[\s{;])(?:\w+|(?:rank_|state_|state)(?:->|\.)\w+\(\))\.wait\((?P<event>[^;]*)\);")


# Whose waits another program than the containers' looks for.
OFFLOADED = ["backend/device/offloaded_updates.hpp", "backend/device/piece_updates.hpp"]

# Of a cursor, for what it measures alone.
MEASURED_WAIT = re.compile(r"(?<=[\s{;])led_\[g\]->gradients\(\)\.wait\((?P<event>)\);")
# Of a norm, and of whoever else reads what is reduced.
SUMS_WAIT = re.compile(r"(?<=[\s{;])group\.gradients\(\)\.wait\((?P<event>)\);")
# Of the host for the streams, and of what runs later for a gather that nobody waits for.
END = re.compile(r"(?<=[\s{;])(?:(?:rank_|streams_|stream|compute|communication|reduction|"
                 r"rank_?(?:->|\.)(?:compute|communication)_stream\(\))(?:->|\.))?(?:settle|synchronize)\((?P<event>)[^;{]*\);")
# Of a rank's streams for each other, around what captures and launches them.
FORK = re.compile(r"(?<=[\s{;])(?:compute|communication|reduction)\.wait\((?P<event>[^;]*)\);")

# Of copies between a device's memory and the host's, and of the host for them.
COPY_WAIT = re.compile(r"(?<=[\s{;])(?:stream_\.ref\(\)\.wait|used\.copied\.synchronize)\((?P<event>)[^;{]*\);")

# Of the host's streams, for each other and for their end.
HOST_WAIT = re.compile(r"(?<=[\s{;])(?:world\.drain|await|wait(?=\((?:submitted\(\)|event\.point\(\))\)))\((?P<event>)[^;{]*\);")
STREAM_WAIT = re.compile(r"(?<=[\s{;])(?:event\.queue\(\)|queue_)->(?:wait|settle|synchronize)\((?P<event>)[^;]*\);")

# Of the two lanes of a World of MPI's: file, name, statement, replacement; file, name, pattern, replacement.
MPI = "shardkit/backend/mpi"
LANES = [
    (f"{MPI}/world.hpp", "one lane for all", "lanes_.add(job_, ranks);", "if (i == 0) { lanes_.add(job_, ranks); }"),
    (f"{MPI}/world.hpp", "both lanes over one communicator",
     "return {what, *this, lane, group, group.channels[lane.number()], axes};",
     "return {what, *this, lane, group, group.channels.front(), axes};"),
    (f"{MPI}/world.hpp", "both lanes meet in one place",
     "channel.told = reinterpret_cast<detail::HostBlock*>(blocks + i * bytes);",
     "channel.told = reinterpret_cast<detail::HostBlock*>(blocks);"),
    (f"{MPI}/world.hpp", "no turns", "job_.turns.require();", NOTHING),
    (f"{MPI}/world.hpp", "an inline verb before what the other lane was given", "lanes_.synchronize_beside(*lane);",
     NOTHING),
    (f"{MPI}/world.hpp", "drain leaves the reductions out",
     "streams().synchronize();", "communication_stream().synchronize();"),
    (f"{MPI}/world.hpp", "drain leaves the gathers out",
     "streams().synchronize();", "reduction_stream().synchronize();"),
]
TURNS = [
    (f"{MPI}/watch.hpp", "farewells listened for out of turn", r"const CallTurns::Turn turn\(job_\.turns\);", ""),
    (f"{MPI}/lane.hpp", "messages looked for out of turn", r"call\.mpi\(\)\.check\((?=\s*MPI_Testall)",
     "static_cast<void>("),
]

# Of what the watch of a World on NCCL says and does, in this order.
NCCL = "shardkit/backend/nccl"
TOLD = "stalled_.store(true, std::memory_order_release);  // first: work looks done once it is ended"
WATCHED = [
    (f"{NCCL}/live_groups.hpp", "what is ended passes for done for 200 ms",
     f'''{TOLD}
        end_from(survivable_ ? revoke_world() : groups().begin());''',
     '''end_from(survivable_ ? revoke_world() : groups().begin());
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        stalled_.store(true, std::memory_order_release);'''),
    (f"{NCCL}/verb_order.hpp", "an aborted verb is recorded as done", "if (aborted_) { return; }", NOTHING),
]


class Waits(Target):
    """`patterns`: what is looked for, and in which folders or files; `without`: names of files that are another's."""

    def __init__(self, name, root, patterns, *arguments, without=()):
        super().__init__(name, root, [], *arguments)
        self.patterns = patterns
        self.without = without

    def mutants(self):
        for pattern, folders in self.patterns.items():
            for header in (each for folder in folders for each in sorted((self.root / "shardkit").glob(
                    folder if folder.endswith(".hpp") else f"{folder}/*.hpp")) if each.name not in self.without):
                text = header.read_text(encoding="utf-8")
                for match in pattern.finditer(text):
                    if (header.name, match.group(0)) in EXCUSED:
                        print(f"{header.relative_to(ROOT)}: excused: {EXCUSED[header.name, match.group(0)]}", flush=True)
                        continue
                    line = text.count("\n", 0, match.start()) + 1
                    # What makes the event still runs: leasing a slot, recording.
                    left = f"static_cast<void>({match.group('event') or 0});"
                    yield Mutant(f"{header.relative_to(ROOT)}:{line}", match.group(0), header.relative_to(self.root),
                                 match.start(), match.end(), left, "statement")


class Lanes(Target):
    launch = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2")


def check_excused():
    """Every excused wait is still there."""
    for name, statement in EXCUSED:
        found = sum(path.read_text(encoding="utf-8").count(statement) for path in (ROOT / "include").rglob(name))
        if found != 1:
            sys.exit(f"{found} times '{statement}' in {name}, expected the excused one")


def build_standin(compiler, folder, jobs, flags):
    sources = [path for path in sorted(STANDIN.glob("*.cpp"))
               if not path.name.endswith("_test.cpp") and not path.name.startswith("cublas")]
    objects = [pathlib.Path(folder) / f"{path.stem}.o" for path in sources]

    def build(pair):
        subprocess.run([compiler, "-std=c++20", "-O1", "-w", *flags, f"-I{ROOT / 'include'}", "-c", str(pair[0]), "-o",
                        str(pair[1])], check=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(build, zip(sources, objects)))
    return [str(each) for each in objects]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", help="containers, offload, ends, ring, sums, watch, host, measured or lanes; all of them if not given")
    options = parser.parse_args()
    check_excused()
    flags = [f"-I{TESTS}", f"-I{STANDIN}", f"-I{STANDIN / 'include'}", "-pthread"]
    with tempfile.TemporaryDirectory() as folder:
        objects = build_standin(options.compiler, folder, options.jobs, flags)
        targets = [
            Waits("containers", ROOT / "include", {
                WAIT: ["sharded", "optim", "backend/device", "muon", "verify", "mesh", "memory", "follow"],
                SUMS_WAIT: ["optim", "backend/device", "step"]}, "waits_killer.cpp", objects, [*flags, "-DSHARDKIT_CHECKED=1"], without=[each.rsplit("/")[-1] for each in OFFLOADED]),
            Waits("offload", ROOT / "include", {WAIT: OFFLOADED}, "offload_killer.cpp", objects, flags),
            Waits("ends", ROOT / "include", {END: ["sharded", "follow", "rank", "comm/streams.hpp"], FORK: ["comm/streams.hpp"]}, "ends_killer.cpp", [],
                  [*flags, "-DSHARDKIT_CHECKED=1"]),
            Waits("ring", ROOT / "include", {WAIT: ["context_parallel"]}, "ring_killer.cpp", objects, flags),
            Waits("sums", ROOT / "include", {WAIT: ["backend/nccl"], COPY_WAIT: ["backend/cuda"]}, "sums_killer.cpp", objects, flags),
            Target("watch", ROOT / "include", [], "watch_killer.cpp", objects, flags, statements=WATCHED),
            Waits("host", ROOT / "include", {HOST_WAIT: ["backend/host", "backend/threads"], STREAM_WAIT: ["comm/stream.hpp"]},
                  "streams_killer.cpp", [], flags),
            Waits("measured", ROOT / "include", {MEASURED_WAIT: ["follow"]}, "measured_killer.cpp", [], flags),
        ]
        if shutil.which(Lanes.launch[0]):
            mpi = [f"-I{TESTS}", "-DOMPI_SKIP_MPICXX", *package_flags("--cflags", "ompi-c"),
                   *package_flags("--libs", "ompi-c")]
            targets.append(Lanes("lanes", ROOT / "include", [], "lanes_killer.cpp", [TESTS / "mpi" / "interposed.cpp"],
                                 mpi, texts=TURNS, statements=LANES))
        else:
            print("no Open MPI: the lanes of processes are not mutated")
        sys.exit(report([each for each in targets if options.target in (None, each.name)], options))


if __name__ == "__main__":
    main()
