# SPDX-License-Identifier: Apache-2.0
"""What it costs to include the library's headers, against standard headers and other libraries, and to compile a
trainer, against one by hand: processor time of the compiler, its instructions, and lines after preprocessing."""
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile

import machine
import row
from refusal import WrongData
from targets import bound_of

PART = "includes"
FOLDERS = ("layout", "policy", "mesh")
LIGHT = bound_of("includes_light")  # under nvcc too
WHOLE = bound_of("includes_umbrella")
TRAINER = bound_of("trainer_compile_time")
TRAINERS = pathlib.Path(__file__).resolve().parent / "trainers"
UMBRELLA = "shardkit/shardkit.hpp"
FLAGS = ["-std=c++20", "-pthread"]
NVCC_ROUNDS = 3


def standard_headers(include):
    """What the umbrella includes, directly or not, that is not the library's own."""
    reached, waiting, standard = set(), [UMBRELLA], set()
    while waiting:
        header = waiting.pop()
        if header in reached:
            continue
        reached.add(header)
        text = (include / header).read_text(encoding="utf-8")
        for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE):
            if name.startswith("shardkit/"):
                waiting.append(name)
            else:
                standard.add(name)
    return sorted(standard)


class Source:
    """A file that includes something and nothing else."""

    def __init__(self, name, folder, headers, number):
        self.name = name
        self.file = folder / f"{number}.cpp"
        self.file.write_text("".join(f"#if __has_include(<{header}>)\n#include <{header}>\n#endif\n" for header in
                                     headers) if len(headers) > 1 else f"#include <{headers[0]}>\n", encoding="utf-8")
        self.flags = []


class Trainer:
    """A whole program, compiled with optimization."""

    def __init__(self, name, file, *flags):
        self.name = name
        self.file = TRAINERS / file
        self.flags = ["-O2", *flags]


class Compiler:
    """A compiler with the flags that every source gets."""

    def __init__(self, command, include, more=()):
        self.command = command
        self.version = machine.first_line([command, "--version"])
        self.flags = ["-I", str(include), *more, *FLAGS]
        if pathlib.Path(command).name == "nvcc":
            lines = subprocess.run([command, "--version"], stdout=subprocess.PIPE, check=False).stdout.decode()
            self.version = "nvcc " + (re.search(r"release [\d.]+", lines) or ["?"])[0]
            self.flags = ["-I", str(include), "-std=c++20", "-x", "cu"]
        # clang has no wrapper.
        self.counts_instructions = not any(word in self.version for word in ("clang", "nvcc"))

    def run(self, source, failed, *words):
        """What it prints, and its errors.
        @raise WrongData that says `failed` and how its errors begin"""
        done = subprocess.run([self.command, *self.flags, *source.flags, *words, str(source.file)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=1800, check=False)
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise WrongData(f"{self.command}: {failed}: {log.strip()[:300]}")
        return done.stdout, log

    def seconds(self, source, output):
        """Processor time of one compilation, of the compiler and what it starts."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(source, f"{source.name} does not compile", "-c", "-o", str(output))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def instructions(self, source, output):
        """Of one compilation by g++ up to assembly: all of it is one process, and the count hardly varies."""
        counted = "valgrind,--tool=cachegrind,--cache-sim=no,--cachegrind-out-file=/dev/null"
        failed = f"the instructions for {source.name} cannot be counted"
        _, log = self.run(source, failed, "-wrapper", counted, "-S", "-o", str(output))
        found = re.search(r"I\s+refs:\s+([\d,]+)", log)
        if not found:
            raise WrongData(f"{self.command}: {failed}: {log.strip()[:300]}")
        return int(found.group(1).replace(",", ""))

    def compiles(self, source, output):
        try:
            self.seconds(source, output)
            return True
        except WrongData:
            return False

    def lines(self, source):
        """That are left after preprocessing, without empty ones."""
        text, _ = self.run(source, f"{source.name} cannot be preprocessed", "-E")
        return sum(1 for line in text.splitlines() if line.strip() and not line.startswith(b"#"))


def light_headers(include):
    """The headers of the folders that are to be light: a list for each folder."""
    return [sorted(path.relative_to(include).as_posix() for path in (include / "shardkit" / folder).glob("*.hpp"))
            for folder in FOLDERS]


def heaviest(compiler, headers):
    """Of which the most lines are left after preprocessing."""
    with tempfile.TemporaryDirectory() as name:
        return max(headers, key=lambda header: compiler.lines(Source(header, pathlib.Path(name), [header], 0)))


def make_sources(include, folder, light):
    """Sources by name."""
    wanted = [("<vector>", ["vector"]), ("its standard headers", standard_headers(include)),
              ("shardkit.hpp", [UMBRELLA])]
    wanted += [(name.removeprefix("shardkit/"), [name]) for name in light]
    return {name: Source(name, folder, headers, number) for number, (name, headers) in enumerate(wanted)}


def other_libraries(compiler, folder):
    """Those that compile."""
    sources = [Source(name, folder, [name], name.partition(".")[0].replace("/", "_")) for name in
               ("nlohmann/json.hpp", "nccl.h")]
    return {source.name: source for source in sources if compiler.compiles(source, folder / "output.o")}


def make_trainers():
    """One trainer by hand, and with the library: over the core that is compiled once, and as one file."""
    trainers = [Trainer("trainer by hand", "by_hand.cpp"),
                Trainer("trainer, compiled form", "with_library.cpp", "-DSHARDKIT_COMPILED"),
                Trainer("trainer", "with_library.cpp")]
    return {trainer.name: trainer for trainer in trainers}


def compared(names):
    """Which source stands against which, and the aim."""
    for name in names:
        if "/" in name and not name.startswith("nlohmann/"):
            yield name, "<vector>", LIGHT
    yield "shardkit.hpp", "its standard headers", WHOLE
    yield "shardkit.hpp", "<vector>", None
    for other in ("nlohmann/json.hpp", "nccl.h"):
        if other in names:
            yield "shardkit.hpp", other, None
    for name in ("trainer", "trainer, compiled form"):
        if name in names:
            yield name, "trainer by hand", TRAINER if "compiled" in name else None


def measure(compiler, include, light, options, report):
    """Processor time of all sources in turns, in rounds. The aims are of this time where instructions are not counted;
    a trainer's always is of instructions."""
    label = pathlib.Path(compiler.command).name
    rounds = min(options.rounds, NVCC_ROUNDS) if label == "nvcc" else options.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sources = make_sources(include, folder, light) | other_libraries(compiler, folder)
        if label != "nvcc":  # whose trainers are examples/cuda_trainer's
            sources |= make_trainers()
            del sources["trainer"]  # which takes longer than all others together: its instructions are enough
        seconds = {each: [] for each in sources}
        for source in sources.values() if not options.quick else ():
            compiler.seconds(source, folder / "output.o")  # files into the system's cache
        for _ in range(rounds):
            for each, source in sources.items():
                seconds[each].append(compiler.seconds(source, folder / "output.o"))
        lines = {each: compiler.lines(source) for each, source in sources.items()}
    report.record_side(label, {"version": compiler.version, "flags": " ".join([*FLAGS, "-c"])})
    for ours, peer, aim in compared(list(sources)):
        report.add(row.make_row(
            PART, f"{ours}, {label}", row.side(ours, seconds[ours], lines=lines[ours]),
            row.side(peer, seconds[peer], lines=lines[peer]), "times_the_cost",
            [a / b for a, b in zip(seconds[ours], seconds[peer])],
            None if compiler.counts_instructions or aim is TRAINER else aim, None, compiler=label))


def count(compiler, include, headers, options, report):
    """Instructions, once: they are the same on every machine.
    @raise Unavailable without what counts"""
    label = pathlib.Path(compiler.command).name
    options.setup.need("valgrind")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sources = make_sources(include, folder, headers) | make_trainers()
        counts = {each: compiler.instructions(source, folder / "output.s") for each, source in sources.items()}
    for ours, peer, aim in compared(list(sources)):
        report.add(row.make_row(
            PART, f"{ours}, {label}, instructions", row.side(ours, instructions=counts[ours]),
            row.side(peer, instructions=counts[peer]), "times_the_instructions", [counts[ours] / counts[peer]], aim,
            None, compiler=label))


def run(options, report):
    include = options.setup.root / "include"
    folders = light_headers(include)
    nvcc = shutil.which("nvcc")
    toolkit = ["-isystem", str(pathlib.Path(nvcc).resolve().parents[1] / "include")] if nvcc else []
    counting = []
    for command in options.compilers:
        if shutil.which(command) is None:
            report.leave_out(PART, command, "it is not in PATH")
            continue
        compiler = Compiler(command, include, () if command == "nvcc" else toolkit)
        measure(compiler, include, [heaviest(compiler, headers) for headers in folders], options, report)
        if compiler.counts_instructions and not options.quick:  # minutes
            counting.append(compiler)
    for compiler in counting:  # after all that wants a quiet machine
        with report.attempt(PART, f"instructions, {pathlib.Path(compiler.command).name}"):
            count(compiler, include, [header for headers in folders for header in headers], options, report)
