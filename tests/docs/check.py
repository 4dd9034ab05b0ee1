# SPDX-License-Identifier: Apache-2.0
"""check.py ROOT PAGE [--precompiled FILE --templates OBJECT --compiled-form FILE] -- COMPILER [flags]: a page of
documentation says what is so.

Every C++ block is a whole program (```cpp program): it compiles without a warning, header-only and in the compiled form,
and exits with 0; what the compiled form does not have is marked (```cpp program header-only). One for GPUs
(```cpp gpu program) compiles against the stand-in's declarations of CUDA and NCCL. A struct that is shown alone (```cpp
declarations) has the members of its header. Where a block
```text output follows, it prints exactly that; ```text output of FILE is what the program in that file of the tree prints
(```text output of FILE header-only as above). Commands in ```sh blocks, flags of examples/run, links and names of
files exist. `check.py ROOT pages PAGE...` compares a list of pages with those on disk. FILE: shardkit/shardkit.hpp,
precompiled by g++, which takes longer to read than the programs, header-only and in the compiled form; what it says to be
elsewhere is in OBJECT.

`check.py ROOT programs PAGE... [--precompiled FILE --templates OBJECT] -- COMPILER [flags]` compiles the programs of many
pages as one, all but those that are marked, and runs them one by one; of these `check.py ROOT PAGE --programs-elsewhere`
sees only that the compiled form has them.
"""
import argparse
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

README_PROGRAM_LINES = 15
# Roots from which pages name files; a room's headers are named as they are included, without the library's folder.
FILE_ROOTS = (".", "include/shardkit", "docs")
FILE_NAME = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:hpp|cpp|py|md|build|txt|json|in)|(?:examples|tests|\.ci)/[\w./-]*\w")
BUILTINS = ("cd", "export")
# Commands that a machine need not have where the pages are checked.
OPTIONAL = ("nvcc", "valgrind")
UMBRELLA = "#include <shardkit/shardkit.hpp>\n"


def blocks(text):
    """(info string, content, first line's number) of every fenced block, and the text without them."""
    found, rest, block = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"```(.*)$", line)
        if fence and block is None:
            block = (fence[1].strip(), [], number + 1)
        elif fence:
            found.append((block[0], "\n".join(block[1]) + "\n", block[2]))
            block = None
        elif block is not None:
            block[1].append(line)
        else:
            rest.append((number, line))
    if block is not None:
        found.append((f"{block[0]} (never closed)", "", block[2]))
    return found, rest


def check_gpu_program(root, page, number, code, compiler):
    with tempfile.TemporaryDirectory(prefix="shardkit-docs-") as folder:
        source = pathlib.Path(folder, "page.cpp")
        source.write_text(code, encoding="utf-8")
        command = [*compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", root / "include", "-I",
                   root / "tests/standin/include", source]
        built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if built.returncode != 0:
            yield f"{page}:{number}: does not compile:\n{built.stdout}"


def library_headers(code):
    return tuple(re.findall(r"^#include <(shardkit/[^>]+)>$", code, re.MULTILINE))


def as_one(programs):
    """One program that runs the one whose number it is given: together they take a compiler little more than the
    largest of them does alone. Lines have the numbers that they have in their block, and are in a namespace that is named
    as their place."""
    includes, bodies, calls = [], [], []
    for k, (where, code, _) in enumerate(programs):
        name = "at_" + re.sub(r"\W", "_", where)
        lines = code.splitlines()
        includes += [line for line in lines if line.startswith("#include ") and line not in includes]
        body = "\n".join("" if line.startswith("#include ") else line for line in lines)
        body = re.sub(r"^int main\(", "int program(", body, flags=re.MULTILINE).rstrip().removesuffix("}")
        bodies.append(f'namespace {name} {{\n#line 1 "page.cpp"\n{body} return 0;\n}}\n}}\n')
        given = "" if re.search(r"^int main\(\)", code, re.MULTILINE) else "count - 1, arguments + 1"
        calls.append(f"    if (number == {k}) {{ return {name}::program({given}); }}\n")
    includes.sort(key=lambda line: line != UMBRELLA.strip())  # only as the first it is taken precompiled
    return "".join(line + "\n" for line in [*includes, "#include <cstdlib>"]) + "".join(bodies) + \
        "int main(int count, char** arguments) {\n    const int number = count < 2 ? -1 : std::atoi(arguments[1]);\n" + \
        "".join(calls) + "    return 99;\n}\n"


def put_precompiled(folder, precompiled):
    """g++ takes it instead of the header of that name in a folder that it looks into later."""
    if precompiled:
        pathlib.Path(folder, "shardkit").mkdir()
        pathlib.Path(folder, "shardkit/shardkit.hpp.gch").symlink_to(precompiled)


def check_compiled_form(root, page, number, code, compiler, precompiled, marked):
    """The compiled form takes a second, and a program that includes too little does not compile in it."""
    with tempfile.TemporaryDirectory(prefix="shardkit-docs-") as folder:
        source = pathlib.Path(folder, "page.cpp")
        source.write_text(code, encoding="utf-8")
        put_precompiled(folder, precompiled)
        command = [*compiler, "-DSHARDKIT_COMPILED", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", folder, "-I",
                   root / "include", source]
        built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if marked and built.returncode == 0:
        yield f"{page}:{number}: marked 'cpp program header-only', and compiles in the compiled form"
    elif built.returncode != 0 and not marked:
        yield f"{page}:{number}: does not compile with SHARDKIT_COMPILED (if it cannot, mark it 'cpp program " \
              f"header-only'):\n{built.stdout}"


def check_programs(root, programs, compiler, precompiled, templates):
    """Programs that are compiled as one, and run one by one.
    `programs`: (page and number of the first line, code, expected output or None)"""
    alone = len(programs) == 1
    with tempfile.TemporaryDirectory(prefix="shardkit-docs-") as folder:
        source, program = pathlib.Path(folder, "page.cpp"), pathlib.Path(folder, "page")
        source.write_text(programs[0][1] if alone else as_one(programs), encoding="utf-8")
        put_precompiled(folder, precompiled)
        # By its name alone, as what the program prints may say where it went wrong.
        command = [*compiler, "-Wall", "-Wextra", "-Werror", "-I", folder, "-I", root.resolve() / "include", source.name,
                   *templates, "-pthread", "-o", program]
        built = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               check=False)
        if built.returncode != 0:
            places = ", ".join(each[0] for each in programs)
            yield f"{places}: {'does' if alone else 'do'} not compile:\n{built.stdout}"
            return
        for k, (where, _, expected) in enumerate(programs):
            own = pathlib.Path(folder, f"run-{k}")
            own.mkdir()
            yield from run_program(where, [program] if alone else [program, str(k)], own, expected)


def run_program(where, command, folder, expected):
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        yield f"{where}: still running after a minute"
        return
    if ran.returncode != 0:
        yield f"{where}: exited with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
    elif expected is not None and ran.stdout != expected:
        yield f"{where}: prints\n{ran.stdout}and the page says\n{expected}"


def check_commands(root, page, number, text):
    flags = "".join(path.read_text(encoding="utf-8") for path in (root / "examples/train_gpt").rglob("*.[ch]pp"))
    lines = text.splitlines()
    for offset, line in enumerate(lines):
        if offset > 0 and lines[offset - 1].endswith("\\"):
            continue  # the rest of a command
        words = shlex.split(line.removesuffix("\\"), comments=True)
        while words and re.match(r"\w+=", words[0]):
            words.pop(0)
        if not words or words[0] in BUILTINS:
            continue
        where, name = f"{page}:{number + offset}", words[0]
        path = root / name
        if name.startswith("build/"):
            continue  # what a command of the page builds
        if "/" in name:
            if not path.is_file() or not path.stat().st_mode & 0o100:
                yield f"{where}: {name} is no program of this tree"
        elif shutil.which(name) is None and name not in OPTIONAL:
            yield f"{where}: there is no command {name}"
        if name == "examples/run":
            for word in words[1:]:
                if word.startswith("--") and f'"{word}"' not in flags:
                    yield f"{where}: train_gpt has no flag {word}"


def anchors(path):
    """What a link can name in a page: its headings, as GitHub and Sphinx write them."""
    heads = (line.lstrip("#").strip().lower() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


def check_names(root, page, rest):
    folder = (root / page).parent
    for number, line in rest:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", line):
            if "://" not in target and not (folder / target).exists():
                yield f"{page}:{number}: the link {target} leads nowhere"
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", line):
            path = folder / target if target else root / page
            if path.exists() and anchor not in anchors(path):
                yield f"{page}:{number}: {target or page} has no heading #{anchor}"
        for name in re.findall(r"`([^`]+)`", line):
            roots = [folder, *(root / base for base in FILE_ROOTS)]
            if FILE_NAME.fullmatch(name) and not any((base / name).exists() for base in roots):
                yield f"{page}:{number}: there is no file {name}"


def members(declarations, struct):
    """Names of a struct's own members, in order; None where the text has no such struct."""
    begin = re.search(rf"^struct {struct}\b[^;{{]*\{{$", declarations, re.MULTILINE)
    if begin is None:
        return None
    names, depth = [], 1
    for line in declarations[begin.end():].splitlines():
        line = re.sub(r"\s*//.*", "", line).strip()
        if depth == 1 and line.endswith(";") and not line.startswith(("}", "using", "static", "friend")):
            flat = re.sub(r"<.*>", "", re.sub(r"( = .*|\{.*\})?;$", "", line))
            names += [each.split()[-1] for each in flat.split(", ")]
        depth += line.count("{") - line.count("}")
        if depth == 0:
            break
    return names


def check_declarations(root, page, number, content):
    """A struct that a page shows has the members that it has in its header, in their order."""
    headers = [header.read_text(encoding="utf-8") for header in sorted((root / "include").rglob("*.hpp"))]
    for struct in re.findall(r"^struct (\w+) \{$", content, re.MULTILINE):
        shown = members(content, struct)
        found = next((m for m in (members(header, struct) for header in headers) if m), None)
        if shown != found:
            yield f"{page}:{number}: struct {struct} is shown with {shown}, and has {found}"


OF_FILE = re.compile(r"text output of (\S+)( header-only)?")


def programs_of(root, page, found):
    """(number of the first line, code, expected output or None, whether it is marked) of each program of a page's blocks."""
    for i, (info, content, number) in enumerate(found):
        if info in ("cpp program", "cpp program header-only"):
            following = found[i + 1] if i + 1 < len(found) else ("", "", 0)
            yield number, content, following[1] if following[0] == "text output" else None, info.endswith("header-only")
        elif of_file := OF_FILE.fullmatch(info):
            yield number, (root / of_file[1]).read_text(encoding="utf-8"), content, of_file[2] is not None


def check_page(root, page, compiler, precompiled, templates, compiled_form, without_program, elsewhere):
    found, rest = blocks((root / page).read_text(encoding="utf-8"))
    programs, alike = 0, {}
    for number, code, expected, marked in programs_of(root, page, found):
        programs += 1
        yield from check_compiled_form(root, page, number, code, compiler, compiled_form, marked)
        if marked or not elsewhere:
            alike.setdefault(library_headers(code) if marked else (), []).append((f"{page}:{number}", code, expected))
    for info, content, number in found:
        if info in ("cpp program", "cpp program header-only"):
            if not content.startswith(UMBRELLA) and UMBRELLA in content:
                yield f"{page}:{number}: includes shardkit/shardkit.hpp, expected first: only there it is taken precompiled"
            lines = len(content.splitlines())
            if page == "README.md" and content == next(programs_of(root, page, found))[1] and lines > README_PROGRAM_LINES:
                yield f"{page}:{number}: the first program has {lines} lines, at most {README_PROGRAM_LINES} are promised"
        elif info == "cpp gpu program":
            programs += 1
            yield from check_gpu_program(root, page, number, content, compiler)
        elif info == "cpp declarations":
            yield from check_declarations(root, page, number, content)
        elif re.fullmatch(r"sh( \w+)?", info):  # a word: which of several a test runs
            yield from check_commands(root, page, number, content)
        elif info not in ("text", "text output", "meson", "cmake") and not OF_FILE.fullmatch(info):
            yield f"{page}:{number}: a block marked '{info}'; expected cpp program, " \
                  "cpp program header-only, cpp gpu program, cpp declarations, text output, text, sh, meson or cmake"
    for together in alike.values():
        yield from check_programs(root, together, compiler, precompiled, templates)
    if programs == 0 and not without_program:
        yield f"{page}: no program; every page has one that is compiled"
    elif programs > 0 and without_program:
        yield f"{page}: has programs, and is listed as a page without one"
    yield from check_names(root, page, rest)


def check_list(root, listed):
    on_disk = ["README.md", *(path.relative_to(root).as_posix() for folder in ("docs/*.md", "examples/*/README.md")
                              for path in sorted(root.glob(folder)))]
    for page in sorted(set(on_disk) ^ set(listed)):
        yield f"{page}: " + ("not in tests/docs/meson.build" if page in on_disk else "listed, and not on disk")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    if sys.argv[2] == "pages":
        wrong = list(check_list(root, sys.argv[3:]))
    else:
        options = argparse.ArgumentParser()
        options.add_argument("pages", nargs="+")
        options.add_argument("--precompiled", type=pathlib.Path)
        options.add_argument("--templates", type=pathlib.Path)
        options.add_argument("--compiled-form", type=pathlib.Path)
        options.add_argument("--without-program", action="store_true")
        options.add_argument("--programs-elsewhere", action="store_true")
        split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
        given, compiler = options.parse_args(sys.argv[2:split]), sys.argv[split + 1:]
        templates = [given.templates.resolve()] if given.templates else []
        precompiled, compiled_form = (file and file.resolve() for file in (given.precompiled, given.compiled_form))
        if given.pages[0] == "programs":
            wrong = list(check_programs(root, [
                (f"{page}:{number}", code, expected) for page in given.pages[1:] for number, code, expected, marked in
                programs_of(root, page, blocks((root / page).read_text(encoding="utf-8"))[0]) if not marked],
                compiler, precompiled, templates))
        else:
            wrong = list(check_page(root, given.pages[0], compiler, precompiled, templates, compiled_form,
                                    given.without_program, given.programs_elsewhere))
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
