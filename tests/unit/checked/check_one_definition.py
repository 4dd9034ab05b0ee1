# SPDX-License-Identifier: Apache-2.0
"""Two translation units, one of a checked build and one that is not, must give every function that both compile
the same machine code: the linker keeps one of the two, and a program that holds both builds calls it for both.

Usage: check_one_definition.py CHECKED.o UNCHECKED.o (ELF for 64 bits, compiled without optimization)
"""

import struct
import subprocess
import sys
from pathlib import Path

SYMBOLS, RELOCATIONS, LONG_INDICES = 2, 4, 18  # types of sections
WEAK, FUNCTION = 2, 2


def weak_functions(path):
    """Returns the functions of an object file that the linker may merge: name to bytes and to what they refer to."""
    data = path.read_bytes()
    (begin,) = struct.unpack_from("<Q", data, 0x28)

    def section(i):
        return struct.unpack_from("<IIQQQQIIQQ", data, begin + i * 64)

    sections = [section(i) for i in range(struct.unpack_from("<H", data, 0x3C)[0] or section(0)[5])]
    of_type = {s[1]: s for s in sections}
    names = sections[of_type[SYMBOLS][6]][4]
    symbols = []
    for i in range(of_type[SYMBOLS][5] // 24):
        name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", data, of_type[SYMBOLS][4] + i * 24)
        if index == 0xFFFF:
            (index,) = struct.unpack_from("<I", data, of_type[LONG_INDICES][4] + i * 4)
        text = data[names + name : data.index(b"\0", names + name)].decode()
        symbols.append((text, info, index, value, size))
    relocations = {s[7]: s for s in sections if s[1] == RELOCATIONS}
    functions = {}
    for name, info, index, value, size in symbols:
        if (info >> 4, info & 15) != (WEAK, FUNCTION) or size == 0:
            continue
        at = sections[index][4] + value
        refers = []
        if index in relocations:
            _, _, _, _, offset, length, *_ = relocations[index]
            for k in range(length // 24):
                place, kind, addend = struct.unpack_from("<QQq", data, offset + k * 24)
                if value <= place < value + size:
                    # Constants of the unit have no name, and a place of their own in each.
                    to = symbols[kind >> 32][0]
                    named = to != "" and not to.startswith(".")
                    refers.append((place - value, kind & 0xFFFFFFFF, to if named else "", addend if named else 0))
        functions[name] = (data[at : at + size], refers)
    return functions


def main():
    checked, unchecked = (weak_functions(Path(p)) for p in sys.argv[1:3])
    both = checked.keys() & unchecked.keys()
    differ = sorted(name for name in both if "shardkit" in name and checked[name] != unchecked[name])
    print(f"{len(checked)} and {len(unchecked)} functions, {len(both)} in both, {len(differ)} of them differ")
    if len(both) < 1000:
        sys.exit("too few functions in both to say anything: expected two units that train")
    if differ:
        shown = subprocess.run(["c++filt"], input="\n".join(differ), capture_output=True, text=True, check=True).stdout
        sys.exit("these need a type of SHARDKIT_BUILD in their names (core/checked.hpp):\n" + shown)


main()
