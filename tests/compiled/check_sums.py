# SPDX-License-Identifier: Apache-2.0
"""check_sums.py CORE -- COMPILER [flags]: arithmetic of the core is the core's, however a trainer is compiled.

A trainer with verbs of its own (verbs.cpp), compiled with -ffast-math and its kin, defines no function with floating
arithmetic under a name of the core's, and has the same bits in both orders of linking. Loops of the core have names that no header-only file has, which may
contract: else the order of linking chose the bits of optimizers. CORE is the core's archive."""
import pathlib
import re
import subprocess
import sys
import tempfile

FLAGS = ("-O2 -ffast-math", "-O2 -fassociative-math -fno-signed-zeros -fno-trapping-math")
# 0.1 + 1e8 - 1e8 from left to right in fp32 is 0; the NaN of a rank is that of a maximum and a minimum; 3 * 0.25.
EXPECTED = "00000000 7fc00000 7fc00000 3f40\n"
ARITHMETIC = re.compile(r"v?(?:add|sub|mul|div|min|max|u?comi|cmp\w*|fn?m(?:add|sub)\d*)[sp][sd]|f(?:add|sub|mul|max|min|cmp)\w*")


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[:4000]}")
    return done.stdout


def with_arithmetic(binary):
    """The functions whose machine code computes."""
    found, function = set(), None
    for line in run("objdump", "-d", "--no-show-raw-insn", binary).splitlines():
        if start := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            function = start[1]
        elif function and (words := line.split("\t")[1:]) and ARITHMETIC.fullmatch(words[0].split()[0]):
            found.add(function)
    return found


def functions_of(binary):
    """The functions that it defines."""
    return {words[2] for line in run("nm", "--defined-only", binary).splitlines()
            if len(words := line.split()) == 3 and words[1] in "tTwW"}


def demangled(names):
    return subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout


def check_loops(of_core):
    loops = re.findall(r"shardkit::(?:host::)?detail::((?:\w+::)*)(?:HostKernels|RangeUpdates|for_each_lanes)\b", demangled(of_core))
    shared = sum("of_core::" not in namespaces for namespaces in loops)
    if shared or len(loops) < 100:
        sys.exit(f"{shared} of {len(loops)} names of the core's loops may be those of a header-only file")


def check(core, of_core, compiler, folder, flags):
    trainer, program = folder / "verbs.o", folder / "verbs"
    run(*compiler, *flags.split(), "-DSHARDKIT_COMPILED", "-c", pathlib.Path(__file__).with_name("verbs.cpp"), "-o", trainer)
    if both := with_arithmetic(trainer) & of_core:
        sys.exit(f"{flags}: {len(both)} functions of the core's that this file has too:\n{demangled(sorted(both))[:3000]}")
    whole = ("-Wl,--whole-archive", core, "-Wl,--no-whole-archive")
    for order in ((trainer, *whole), (*whole, trainer)):
        run(*compiler, *order, "-pthread", "-o", program)
        if (made := run(program)) != EXPECTED:
            sys.exit(f"{flags}, linked in the order {' '.join(map(str, order))}: {made}expected {EXPECTED}")
    print(f"{flags}: bits of IEEE arithmetic in both orders")


def main():
    split = sys.argv.index("--")
    core = pathlib.Path(sys.argv[1]).resolve()
    include = pathlib.Path(__file__).resolve().parents[2] / "include"
    compiler = [*sys.argv[split + 1:], f"-I{include}"]
    of_core = functions_of(core)
    if len(of_core) < 1000:
        sys.exit(f"{core} has {len(of_core)} functions: this check looks for code that is gone")
    check_loops(of_core)
    with tempfile.TemporaryDirectory(prefix="shardkit-sums-") as name:
        for flags in FLAGS:
            check(core, of_core, compiler, pathlib.Path(name), flags)


if __name__ == "__main__":
    main()
