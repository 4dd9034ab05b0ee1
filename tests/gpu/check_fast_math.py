# SPDX-License-Identifier: Apache-2.0
"""check_fast_math.py NVDISASM LIST PLAIN.cubin FAST.cubin

Fails when what --use_fast_math changes in the machine code of a kernel is not what LIST says. A line of LIST is
"functor | change", and the changes are
    same         none
    subnormal    operations take subnormal floats for zero (.FTZ), and nothing else
    finite       whether elements are finite is asked of the same bits as often, and no comparison is one of floats
    approximate  divisions and roots of floats are approximations (MUFU), with no exact ones behind them
"""
import pathlib
import re
import subprocess
import sys

from check_machine_code import disassembled, operation

# Which side of a normal number a value is on stays what it is when subnormal ones count as zero.
NORMAL_BOUND = re.compile(r"FSETP\.\w+\.FTZ\.AND P\d+, PT, \|?R\d+(?:\.reuse)?\|?, (\d[\d.]*(?:e[-+]?\d+)?), PT$")
EXPONENT_BITS = re.compile(r"0x7f80(0000)?\b|0x7ff00000\b")


def comparable(items):
    """The instructions, with labels counted from the kernel's first and internal functions without their numbers."""
    numbers = {}
    for label, _ in items:
        if label:
            numbers[label] = len(numbers)
    return [re.sub(r"__internal_\d+_", "", re.sub(r"\.L_x_\d+", lambda found: f"L{numbers.get(found[0])}", label or text))
            for label, text in items]


def without_ftz(code):
    return [each.replace(".FTZ", "") for each in code]


def operations(code, pattern):
    return [each for each in code if not re.match(r"L\d+$", each) and re.match(pattern, operation(each))]


def looks_at_subnormal(each):
    """Whether a comparison of floats may come out otherwise with subnormal values as zero."""
    found = NORMAL_BOUND.match(each)
    return not found or float(found[1]) < 2.0 ** -126


def wrong_in(change, plain, fast):
    if change == "same" and plain != fast:
        yield "not the same"
    if change == "subnormal":
        if without_ftz(plain) != without_ftz(fast):
            yield "differs by more than .FTZ"
        if plain == fast:
            yield "does not differ"
    if change == "finite":
        asked = [sum(1 for each in code if EXPONENT_BITS.search(each)) for code in (plain, fast)]
        if asked[0] != asked[1] or asked[0] == 0:
            yield f"looks at exponents {asked[0]} times, and {asked[1]} with --use_fast_math"
        if found := list(filter(looks_at_subnormal, operations(fast, r"FSETP|FSET\b|FMNMX|MUFU"))):
            yield f"compares or approximates floats: {found[0]}"
    if change == "approximate":
        exact = operations(plain, "FCHK|CALL")
        if not exact or operations(fast, "FCHK|CALL"):
            yield "exact divisions or roots are not what changed"
        if not operations(fast, "MUFU"):
            yield "no approximation"


def main():
    nvdisasm, list_path, *cubins = sys.argv[1:]
    plain, fast = (disassembled(nvdisasm, cubin)[0] for cubin in cubins)
    demangled = subprocess.run(["c++filt"], input="\n".join(plain), capture_output=True, text=True, check=True).stdout
    wrong = []
    for line in pathlib.Path(list_path).read_text(encoding="utf-8").splitlines():
        functor, change = (field.strip() for field in line.split("|"))
        names = [name for name, text in zip(plain, demangled.splitlines()) if f"::{functor}" in text and name in fast]
        if len(names) != 1 or change not in ("same", "subnormal", "finite", "approximate"):
            wrong.append(f"{functor}: {len(names)} kernels, expected 1, in which is {change}")
            continue
        codes = [comparable(kernels[names[0]]) for kernels in (plain, fast)]
        print(f"{functor}: {change}, {len(codes[0])} and {len(codes[1])} instructions")
        wrong.extend(f"{functor}: {each}" for each in wrong_in(change, *codes))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
