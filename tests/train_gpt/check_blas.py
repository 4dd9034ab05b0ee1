# SPDX-License-Identifier: Apache-2.0
"""check_blas.py PROGRAM [UNKNOWN_PROCESSOR]: the kernel of train_gpt's BLAS fits the processor; one that is older is told
with the remedy. The library UNKNOWN_PROCESSOR, loaded before, hides the processor from OpenBLAS."""
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
SMALL = ["--batch", "4", "--sequence", "16", "--layers", "1", "--width", "64", "--heads", "2", "--steps", "3", "--mesh", "1x1x1"]
LEFT_OUT = 77
wrong = []


def expect(condition, what, seen):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        print(seen)


def run(core_type=None, **environment):
    """What is said about the BLAS, what the JSON has of it, the losses, and standard error."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    asked = {"OPENBLAS_CORETYPE": core_type} if core_type else {}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([PROGRAM, *SMALL, "--json", "report.json"], cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False, env={**inherited, **asked, **environment})
        if done.returncode != 0:
            return done.stdout, {}, [], done.stderr
        report = json.loads((pathlib.Path(folder) / "report.json").read_text(encoding="utf-8"))
    said = re.search(r"^blas:  .*\n(?: {7}The kernel .*\n)?", done.stdout, re.MULTILINE)
    return said[0] if said else done.stdout, report["blas"], report["losses"], done.stderr


def newest():
    """The kernel for this processor's newest instructions, and their name, as the system tells them."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        flags = set(re.search(r"^flags\s*:(.*)$", file.read(), re.MULTILINE)[1].split())
    if {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return "SkylakeX", "AVX-512"
    return ("Haswell", "AVX2") if {"avx2", "fma"} <= flags else (None, None)


def check_asked(instructions):
    """A kernel that the user asks for is used, said, and told to be older where it is."""
    for core_type, kernel in (("Prescott", "Prescott"), ("prescott", "Prescott")):
        said, blas, losses, errors = run(core_type)
        expect(re.fullmatch(rf"blas:  OpenBLAS \S+, kernel {kernel} \(OPENBLAS_CORETYPE={core_type}\)\n       The kernel is older "
                            rf"than this processor, which has {instructions}: matrix products take longer than they need to\. "
                            r"Unset OPENBLAS_CORETYPE\.\n", said) is not None, f"{core_type} is asked for and older", said + errors)
        expect(blas.get("kernel") == kernel and blas["older_than_processor"] is True and len(losses) == 3
               and re.fullmatch(r"OpenBLAS \d+\.\d+\.\d+\S*", blas["library"]) is not None, "the file says so", str(blas))


def check_own():
    """Left to itself, the kernel fits."""
    said, blas, _, errors = run()
    expect(re.fullmatch(r"blas:  OpenBLAS \S+, kernel \w+(, chosen here: its own choice, \w+, does not fit this processor)?\n", said)
           is not None and blas["older_than_processor"] is False, "without a wish the kernel fits", said + errors)


def check_unknown_processor(library, kernel):
    """OpenBLAS takes its oldest kernel, and train_gpt the one that fits: it computes the bits of that one."""
    said, blas, losses, errors = run(LD_PRELOAD=str(library))
    if not errors:
        print("left out: from this OpenBLAS a processor cannot be hidden, it calls its own functions directly")
        return
    expect(errors == "unknown processor\n", "the processor is hidden", errors)
    expect(re.fullmatch(rf"blas:  OpenBLAS \S+, kernel {kernel}, chosen here: its own choice, Prescott, does not fit this "
                        r"processor\n", said) is not None, "an unknown processor gets the kernel that fits", said + errors)
    expect(blas.get("kernel") == kernel and blas["older_than_processor"] is False, "the file says so", str(blas))
    expect(losses == run(kernel)[2] != run("Prescott")[2], "products are those of this kernel", str(losses))


def main():
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"left out: kernels of other processors than x86-64 ({platform.machine()}) cannot be asked for")
        sys.exit(LEFT_OUT)
    kernel, instructions = newest()
    if kernel is None:
        print("left out: this processor has no AVX2, older kernels are its own")
        sys.exit(LEFT_OUT)
    if "Prescott" not in run("Prescott")[0]:
        print("left out: this OpenBLAS has no choice of kernels, it is built without DYNAMIC_ARCH")
        sys.exit(LEFT_OUT)
    check_asked(instructions)
    check_own()
    if len(sys.argv) > 2:
        check_unknown_processor(pathlib.Path(sys.argv[2]).resolve(strict=True), kernel)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
