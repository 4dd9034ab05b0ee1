# SPDX-License-Identifier: Apache-2.0
"""run.py [--compiler g++] [--jobs N] [--target NAME]: drops, doubles and runs over a wrong axis every sum over ranks in
the library and in the example trainer, one at a time, and builds and runs a program against each mutant that must
fail. Prints site, mutant and what killed it; fails on a survivor, and when a site is written in a way that this script
does not understand.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"
TRAINER = EXAMPLES / "train_gpt"
# Maxima are left out: counted twice, they stay what they are.
CALL = re.compile(r"\b(?:sk::)?(?P<verb>all_reduce|reduce_scatter)(?P<in_place>_in_place)?"
                  r"\((?P<arguments>[^;{}]*ReduceOp::sum[^;{}]*)\);")
# What a site may reduce over, and the wrong axes to try instead. Communicators that are made elsewhere for one axis get
# their wrong axes there: see MADE.
AXES = {
    "comms_.shards": ["comms_.replicas", "comms_.data"],
    "comms_.replicas": ["comms_.shards", "comms_.data"],
    "comms_.data": ["comms_.shards", "comms_.replicas"],
    "comms_.tp": ["comms_.shards", "comms_.data"],
    "context.world()": ["context.template sub_mesh<shardkit::Axes<shardkit::Dp>>()",
                        "context.template sub_mesh<shardkit::Axes<shardkit::Tp>>()"],
    "tp": [],
    "tp_": [],
    "cp_": [],
    "data_ranks_": [],
}
MADE = re.compile(r"sub_mesh<sk::Axes<(?P<axes>[^>]*)>>")
WRONG = {
    "sk::Tp": ["sk::Dp", "sk::Cp"],
    "sk::Cp": ["sk::Dp", "sk::Tp"],
    "sk::Dp, sk::Cp": ["sk::Dp", "sk::Cp", "sk::Tp"],
}
# Sums over tp that the types ask for, and who adds what every tp rank holds whole: file, name, pattern, replacement.
TYPED = [
    ("model/parameters.hpp", "positions not summed over tp", r"(\"wpe\".*)sk::tp::PartialSum", r"\1sk::tp::Replicated"),
    ("model/parameters.hpp", "a block's norms and biases not summed over tp",
     r"(\"(?:norm[12]_\w+|projection_bias|down_bias)\".*)sk::tp::PartialSum", r"\1sk::tp::Replicated"),
    ("model/parameters.hpp", "the last norm not summed over tp", r"(\"norm_\w+\".*)sk::tp::PartialSum",
     r"\1sk::tp::Replicated"),
    ("model/split.hpp", "whole gradients added by every tp rank", r"tp_index == 0 \|\| splits_tokens\(\)", "true"),
    ("model/split.hpp", "whole gradients added by the first tp rank alone", r"tp_index == 0 \|\| splits_tokens\(\)",
     "tp_index == 0"),
]


def split_arguments(text):
    arguments, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            arguments.append(current.strip())
            current = ""
        else:
            current += character
    return arguments + [current.strip()]


def mutants_of(match):
    """(name, replacement) of every mutant of one call."""
    call = match.group(0)
    arguments = split_arguments(match.group("arguments"))
    axes = arguments[0]
    if axes not in AXES:
        sys.exit(f"unknown axes '{axes}' in {call}; add them to AXES")
    yield "dropped", "static_cast<void>(0);"
    if match.group("in_place"):
        yield "doubled", call + " " + call
    elif axes in ("tp", "cp_"):
        # Calling it again would give the same result, so the result is counted twice.
        yield "doubled", f"{call} for (auto& number : {arguments[3]}) {{ number += number; }}"
    else:
        target = arguments[3]
        yield "doubled", f"{call} Kernels::accumulate(stream, std::span<const Reduction>({target}), {target});"
    for other in AXES[axes]:
        yield f"over {other}", call.replace(axes, other, 1)


FLAGS = ["-std=c++20", "-O0", "-w", "-pthread"]
STANDARD = re.compile(r"^#include <[a-z_]+>$", re.MULTILINE)


def compile_command(compiler, folder):
    """How a mutant is compiled. The standard headers that the library includes are read once for all of them."""
    names = {name for header in (ROOT / "include").rglob("*.hpp")
             for name in STANDARD.findall(header.read_text(encoding="utf-8"))}
    standard = pathlib.Path(folder) / "standard.hpp"
    standard.write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")
    subprocess.run([compiler, *FLAGS, "-x", "c++-header", str(standard), "-o", f"{standard}.gch"], check=True)
    return [compiler, *FLAGS, "-include", str(standard)]


class Target:
    """Headers below `root` that are mutated, and the program that must notice."""

    def __init__(self, name, root, folders, killer, sources=(), flags=()):
        self.name, self.root, self.folders, self.killer = name, root, folders, killer
        self.sources, self.flags = [str(source) for source in sources], list(flags)

    def mutants(self):
        for folder in self.folders:
            for header in sorted((self.root / folder).glob("*.hpp")):
                text = header.read_text(encoding="utf-8")
                for match in CALL.finditer(text):
                    line = text.count("\n", 0, match.start()) + 1
                    path = header.relative_to(self.root)
                    for name, replacement in mutants_of(match):
                        mutated = text[:match.start()] + "{ " + replacement + " }" + text[match.end():]
                        yield f"{header.relative_to(ROOT)}:{line}", name, path, mutated
        if self.root == EXAMPLES:
            yield from self.typed_mutants()

    def typed_mutants(self):
        for header in sorted((TRAINER / "program").glob("*.hpp")):
            text = header.read_text(encoding="utf-8")
            for match in MADE.finditer(text):
                if match["axes"] not in WRONG:
                    sys.exit(f"unknown axes '{match['axes']}' in {header}; add them to WRONG")
                line = text.count("\n", 0, match.start()) + 1
                for wrong in WRONG[match["axes"]]:
                    mutated = text[:match.start("axes")] + wrong + text[match.end("axes"):]
                    yield (f"{header.relative_to(ROOT)}:{line}", f"{match['axes']} made over {wrong}",
                           header.relative_to(self.root), mutated)
        for file, name, pattern, replacement in TYPED:
            text = (TRAINER / file).read_text(encoding="utf-8")
            mutated, count = re.subn(pattern, replacement, text)
            if count == 0:
                sys.exit(f"nothing like {pattern} in {file}")
            yield str((TRAINER / file).relative_to(ROOT)), name, (TRAINER / file).relative_to(self.root), mutated

    def run(self, command, folder, overlay=None):
        """None when the program passes, else what stopped it."""
        program = pathlib.Path(folder) / "killer"
        # Quoted includes look beside the including file first, so a mutant brings its neighbours along.
        root = overlay or self.root
        built = subprocess.run([*command, f"-I{root}", f"-I{ROOT / 'include'}", str(HERE / self.killer), *self.sources,
                                "-o", str(program), *self.flags], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            errors = [line for line in built.stderr.splitlines() if "error" in line]
            return "compiler: " + (errors or ["failed"])[0].strip()
        try:
            ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
        except subprocess.TimeoutExpired:
            return "time limit"
        return None if ran.returncode == 0 else (ran.stdout.strip().splitlines() or [f"status {ran.returncode}"])[-1]

    def try_mutant(self, command, mutant):
        site, name, header, text = mutant
        with tempfile.TemporaryDirectory() as folder:
            overlay = pathlib.Path(folder) / "tree"
            shutil.copytree(self.root, overlay)
            (overlay / header).write_text(text, encoding="utf-8")
            return site, name, self.run(command, folder, overlay)


def package_flags(kind, package):
    return subprocess.run(["pkg-config", kind, package], check=True, capture_output=True, text=True).stdout.split()


def report(targets, options):
    """Tries every mutant of the targets; the exit status."""
    tried = survivors = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, tempfile.TemporaryDirectory() as shared:
        command = compile_command(options.compiler, shared)
        for target in targets:
            with tempfile.TemporaryDirectory() as folder:
                reason = target.run(command, folder)
            if reason is not None:
                sys.exit(f"{target.killer} fails without a mutant: {reason}")
            mutants = list(target.mutants())
            if not mutants:
                sys.exit(f"nothing to mutate was found below {target.root}")
            tried += len(mutants)
            results = pool.map(lambda mutant, target=target: target.try_mutant(command, mutant), mutants)
            for site, name, reason in results:
                not_built = reason is not None and reason.startswith("compiler:")
                survivors += reason is None or not_built
                verdict = "SURVIVED" if reason is None else "NO MUTANT" if not_built else "killed by"
                print(f"{site}: {name}: {verdict} {reason or ''}", flush=True)
    print(f"{tried} mutants, {survivors} survived or did not compile")
    return 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", help="library, layers or trainer; all of them if not given")
    options = parser.parse_args()
    trainer = ([TRAINER / "allocation_counter.cpp"],
               [f"-I{EXAMPLES}", *package_flags("--cflags", "openblas"), *package_flags("--libs", "openblas")])
    targets = [
        Target("library", ROOT / "include", ["shardkit/sharded", "shardkit/optim", "shardkit/mesh"], "killer.cpp"),
        Target("layers", ROOT / "include", ["shardkit/tensor_parallel", "shardkit/context_parallel"],
               "trainer_killer.cpp", *trainer),
        Target("trainer", EXAMPLES, ["train_gpt/program"], "trainer_killer.cpp", *trainer),
    ]
    chosen = [target for target in targets if options.target in (None, target.name)]
    if not chosen:
        parser.error(f"--target {options.target}: expected one of {', '.join(target.name for target in targets)}")
    sys.exit(report(chosen, options))


if __name__ == "__main__":
    main()
