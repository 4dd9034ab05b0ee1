# SPDX-License-Identifier: Apache-2.0
"""check_symbols.py LIST|- ARCHITECTURE,... OBJECT...

Fails when an object launches a kernel that is not in its own device code for one of the architectures ("80,90"):
another object's is of no use to it. With a LIST also when a kernel of LIST is missing from the device code of all the
objects, or when there is one that LIST does not name. A line of LIST is a word that the kernel's name has, a space, and the functor
that it runs.
Reads the objects itself (cuobjdump is not part of every toolkit): the device code of each architecture is an ELF image
in the section .nv_fatbin, not compressed (nvcc --no-compress).
"""
import pathlib
import re
import struct
import subprocess
import sys

FATBIN_MAGIC = 0xBA55ED50
KIND_ELF = 2
COMPRESSED = 0x2000 | 0x8000  # LZ4, Zstandard


def sections(image):
    """(name, type, link, content) of each section of a 64-bit ELF image."""
    table, = struct.unpack_from("<Q", image, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    no_content = 8
    contents = [b"" if h[1] == no_content else image[h[4]:h[4] + h[5]] for h in headers]
    for header, content in zip(headers, contents):
        yield text_at(contents[names_at], header[0]), header[1], contents[header[6]], content


def text_at(strings, offset):
    return strings[offset:strings.index(b"\0", offset)].decode()


def images(fatbin):
    """(architecture, ELF image) of each entry of a .nv_fatbin section: fat binaries one behind the other."""
    at = 0
    while at + 16 <= len(fatbin):
        magic, _, header_size, size = struct.unpack_from("<IHHQ", fatbin, at)
        if magic != FATBIN_MAGIC:
            at += 8
            continue
        entry, end = at + header_size, at + header_size + size
        while entry < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", fatbin, entry)
            architecture, = struct.unpack_from("<I", fatbin, entry + 28)
            flags, = struct.unpack_from("<Q", fatbin, entry + 40)
            if flags & COMPRESSED:
                sys.exit("check_symbols: the device code is compressed, compile with --no-compress")
            if kind == KIND_ELF:
                yield architecture, fatbin[entry + entry_header:entry + entry_header + entry_size]
            entry += entry_header + entry_size
        at = end


def entries(image):
    """Names of the kernels that an ELF image defines, without the functions that they call."""
    symbol_table, function, entry = 2, 2, 0x10
    for _, kind, strings, content in sections(image):
        if kind != symbol_table:
            continue
        for at in range(0, len(content), 24):
            name, info, other, section = struct.unpack_from("<IBBH", content, at)
            if info & 0xF == function and other & entry and section != 0:
                yield text_at(strings, name)


def demangled(names):
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def kernels(path):
    """Demangled kernel names of each architecture in an object's device code."""
    found = {}
    for name, _, _, content in sections(path.read_bytes()):
        if name == ".nv_fatbin":
            for architecture, image in images(content):
                found.setdefault(architecture, []).extend(entries(image))
    return {architecture: demangled(names) for architecture, names in found.items()}


def launched(path):
    """Demangled names of the kernels that an object's host code launches: nvcc makes a stub for each."""
    stub, symbol_table, undefined = "__wrapper__device_stub_", 2, 0
    names = []
    for _, kind, strings, content in sections(path.read_bytes()):
        for at in range(0, len(content) if kind == symbol_table else 0, 24):
            name, _, _, section = struct.unpack_from("<IBBH", content, at)
            if section != undefined:
                names.append(text_at(strings, name))
    return [name.replace(stub, "") for name in demangled(names) if stub in name]


def without_parameters(name):
    """A function's demangled name without return type and parameters, which a stub has as references."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at].removeprefix("void ")
    return name


def launched_without_code(path, architectures):
    found = kernels(path)
    for architecture in architectures:
        there = {without_parameters(name) for name in found.get(architecture, [])}
        for name in launched(path):
            if without_parameters(name) not in there:
                yield f"{path.name}, sm_{architecture}: launches what it has no device code for: {name}"


def has(name, kernel, functor):
    """`functor` as a whole: "Pass<float" is not part of "BigPass<float"."""
    return kernel in name and re.search(r"(?<![\w:])" + re.escape(functor) + r"(?!\w)", name) is not None


def compare_with_list(expected, architecture, names):
    for kernel, functor in expected:
        if not any(has(name, kernel, functor) for name in names):
            yield f"sm_{architecture}: no {kernel} of {functor}"
    for name in names:
        if "shardkit::" in name and not any(has(name, kernel, functor) for kernel, functor in expected):
            yield f"sm_{architecture}: not in the list: {name}"
    print(f"sm_{architecture}: {len(names)} kernels, {len(expected)} lines of the list")


def main():
    architectures = [int(number) for number in sys.argv[2].split(",")]
    objects = [pathlib.Path(path) for path in sys.argv[3:]]
    wrong = [line for path in objects for line in launched_without_code(path, architectures)]
    if sys.argv[1] != "-":
        expected = [line.split(" ", 1) for line in pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
        of_objects = [kernels(path) for path in objects]
        for architecture in architectures:
            names = [name for found in of_objects for name in found.get(architecture, [])]
            wrong.extend(compare_with_list(expected, architecture, names))
    print(f"{len(objects)} objects, {sum(len(launched(path)) for path in objects)} launches")
    print("\n".join(wrong[:50]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
