# SPDX-License-Identifier: Apache-2.0
"""Checks over the source tree: check.py CHECK ROOT; all of them and the planted faults: check.py all ROOT, as `tests/run tree`
does. `check.py write-lists ROOT` brings the lists of files up to date, `check.py write-reference ROOT` docs/reference.md."""
import pathlib
import re
import subprocess
import sys

from public_names import public_names

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "docs/site")]
from generate import unlisted_pages  # noqa: E402
from run_tests import first_words  # noqa: E402

# Backends that a machine may lack: not part of the umbrella.
OPTIONAL_BACKENDS = ("mpi", "cblas", "cuda", "nccl", "cub", "thrust")
CUDA_BACKENDS = ("cuda", "nccl", "cub", "thrust")


# What the compiled form is made of, which tests/compiled compiles.
OF_THE_COMPILED_FORM = ("shardkit/compiled", "shardkit/backend/nccl/compiled_")


def headers(root):
    """Those of a header-only program."""
    return [file for file in library_files(root) if file.endswith(".hpp") and not file.startswith(OF_THE_COMPILED_FORM)]


def library_files(root):
    found = (path for path in (root / "include").rglob("*") if path.suffix in (".hpp", ".cuh", ".h", ".inc"))
    return sorted(path.relative_to(root / "include").as_posix() for path in found)


def test_sources(root):
    tests = root / "tests"
    found = list(tests.rglob("*_test.cpp")) + list((tests / "compile_fail").glob("*.cpp"))
    return sorted(path.relative_to(tests).as_posix() for path in found)


def numbered_examples(root):
    return sorted(path.name for path in (root / "examples").glob("[0-9]*.cpp"))


def lists(root):
    return [(root / "tests/headers/list.txt", headers(root)), (root / "tests/list.txt", test_sources(root)),
            (root / "examples/list.txt", numbered_examples(root))]


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def check_lists(root):
    for path, on_disk in lists(root):
        if not path.exists():
            yield f"{path.relative_to(root)} does not exist"
            continue
        listed = [line.strip() for line in lines_of(path) if line.strip()]
        for name in sorted(set(on_disk) - set(listed)):
            yield f"{path.relative_to(root)} lacks {name}"
        for name in sorted(set(listed) - set(on_disk)):
            yield f"{path.relative_to(root)} names {name}, which does not exist"
        if listed != sorted(set(listed)):
            yield f"{path.relative_to(root)} is not sorted, or names a file twice"
    for name in test_sources(root):
        path = root / "tests" / name
        if not name.startswith("compile_fail/") and f"namespace {path.stem} {{" not in lines_of(path):
            yield f"tests/{name} lacks namespace {path.stem}: sources compiled as one unit must not share names"
    for name in numbered_examples(root):
        command = f"g++ -std=c++20 -Iinclude examples/{name} -pthread -o example && ./example"
        if f"// {command}" not in lines_of(root / "examples" / name)[:8]:
            yield f"examples/{name} does not say how it is built: // {command}"


def write_lists(root):
    for path, on_disk in lists(root):
        path.write_text("".join(name + "\n" for name in on_disk), encoding="utf-8")


def included(root, header):
    """What a file reads that is not of the compiled form."""
    text = (root / "include" / header).read_text(encoding="utf-8")
    text = re.sub(r"^#ifdef SHARDKIT_COMPILED\n.*?^#(?:else|endif)\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#include <(shardkit/[^>]+)>", text, re.MULTILINE)


# Rooms whose headers need a toolkit or take long to compile, and the umbrella that has them; everything else is
# shardkit.hpp's, or of one of the parts that are a line of their own in a trainer's file.
BESIDE = {"follow": "schedule"}  # what another room's umbrella has too
UMBRELLAS = {"shardkit/shardkit.hpp": None, "shardkit/checkpoint.hpp": "checkpoint", "shardkit/schedule.hpp": "schedule",
             "shardkit/reshard.hpp": "reshard",
             "shardkit/context_parallel.hpp": "context_parallel",
             "shardkit/tensor_parallel.hpp": "tensor_parallel", "shardkit/expert_parallel.hpp": "expert_parallel",
             "shardkit/mpi.hpp": "mpi", "shardkit/nccl.hpp": "nccl"}
# What authors of parts include.
OF_PARTS = tuple(f"shardkit/spi/{name}.hpp" for name in ("groups", "launches", "optimizers", "placement", "ranks", "step_observer",
                                                               "update_runner", "updates"))
PARTS = (*OF_PARTS, "shardkit/adafactor.hpp", "shardkit/local_shards.hpp", "shardkit/moving_average.hpp", "shardkit/muon.hpp", "shardkit/plan.hpp",
         "shardkit/verify.hpp")


def reached_from(root, header):
    reached, waiting = set(), [header]
    while waiting:
        header = waiting.pop()
        if header not in reached:
            reached.add(header)
            waiting += [name for name in included(root, header) if (root / "include" / name).exists()]
    return reached


def check_umbrella(root):
    """Each umbrella reaches every header with a public name, lists headers with public names only, and is readable."""
    public = {name.header for name in public_names(root, code_headers(root))}
    for umbrella, room in UMBRELLAS.items():
        if not (root / "include" / umbrella).exists():
            yield f"include/{umbrella} does not exist"
            continue
        reached = reached_from(root, umbrella)
        with_parts = reached.union(*(reached_from(root, part) for part in PARTS)) if room is None else reached
        for header in headers(root):
            parts = header.split("/")
            optional = parts[2] if parts[1] == "backend" and parts[2] in OPTIONAL_BACKENDS else None
            own = BESIDE.get(parts[1], parts[1])
            optional = own if own in UMBRELLAS.values() else optional
            if header in public and optional == room and header not in with_parts:
                yield f"{umbrella} does not reach {header}"
            if header in reached and room is None and optional:
                yield f"{umbrella} reaches {header}, which an umbrella of its own has"
        listed = included(root, umbrella)
        for header in sorted(name for name in set(listed) - public if not name.endswith(".inc")):
            yield f"{umbrella} lists {header}, which has no public name"
        if len(listed) > 31:
            yield f"{umbrella} lists {len(listed)} headers; a reader takes in 31 at most"
        for line in (root / "include" / umbrella).read_text(encoding="utf-8").splitlines():
            if line and not re.match(r"#include <shardkit/|#pragma once|//|#ifdef SHARDKIT_COMPILED$|#else$|#endif$", line):
                yield f"{umbrella} holds more than includes: {line}"


def check_rooms(root):
    """The core depends on no toolkit; each toolkit's names stay in its room."""
    outside_cuda = re.compile(
        r"""#\s*include\s*[<"](cuda|nccl|cub/|thrust/|driver_types|nv/target|device_launch)"""
        r"|#\s*if.*\b(CUDA|__CUDACC__|__NVCC__)\b|#\s*if.*\bCUDA")
    rules = [
        (CUDA_BACKENDS, outside_cuda, "CUDA"),
        (("nccl",), re.compile(r"\bnccl[A-Z]\w*"), "NCCL"),
        (("mpi",), re.compile(r"\bMPI_[A-Z]\w*|#\s*include\s*[<\"]mpi\.h"), "MPI"),
    ]
    for file in library_files(root):
        path = root / "include" / file
        parts = path.relative_to(root / "include/shardkit").parts
        room = parts[1] if len(parts) > 2 and parts[0] == "backend" else ""
        for number, line in enumerate(lines_of(path), 1):
            code = line.split("//")[0]
            for rooms, pattern, name in rules:
                if room not in rooms and pattern.search(code):
                    yield f"{path.relative_to(root)}:{number}: {name} outside backend/{'|'.join(rooms)}: {line.strip()}"


def room_of(header):
    """The room of shardkit/room/name.hpp, or of shardkit/backend/room/name.hpp; none for an umbrella."""
    folders = header.split("/")[1:-1]
    return "/".join(folders[:2 if folders[:1] == ["backend"] else 1])


def listed_rooms(root):
    """The rooms in the order of the table in docs/architecture.md."""
    table = (line for line in lines_of(root / "docs/architecture.md") if line.startswith("| `"))
    return [name for line in table for name in re.findall(r"`([\w/]+)/`", line.split("|")[1])]


def listed_parts(root):
    """The parts of docs/architecture.md, and the parts that each of them uses."""
    table = section((root / "docs/architecture.md").read_text(encoding="utf-8"), "Parts", level="###")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return {re.search(r"`([\w/]+)/`", row[1])[1]: re.findall(r"`([\w/]+)/`", row[3]) for row in rows}


# Written as a rule of a user's is: it shows that what is public suffices.
OF_PUBLIC_NAMES = ("shardkit/factored/adafactor_rule.hpp",)


def check_floors(root):
    """A room uses rooms above it in the list only, a part of the core headers with public names, helpers and spi/, and a
    part that a user could have written nothing internal."""
    for file in OF_PUBLIC_NAMES:
        if re.search(r"\bdetail\b", (root / "include" / file).read_text(encoding="utf-8")):
            yield f"include/{file} uses what is internal, expected public names alone"
    rooms = listed_rooms(root)
    on_disk = {room_of(file) for file in library_files(root)} - {""}
    for room in sorted(on_disk - set(rooms)):
        yield f"docs/architecture.md does not list the room {room}/"
    for room in sorted(set(rooms) - on_disk):
        yield f"docs/architecture.md lists the room {room}/, which does not exist"
    parts = listed_parts(root)
    open_to_parts = {name.header for name in public_names(root, code_headers(root))}
    floor = {room: number for number, room in enumerate(rooms)}
    for file in library_files(root):
        for used in included(root, file):
            room, other = room_of(file), room_of(used)
            if room in parts and other not in {*parts, "spi", "core", "detail"} and used not in open_to_parts:
                yield f"include/{file} includes {used}, which is internal: expected the header of spi/ that has it"
            if room in floor and floor.get(other, len(rooms)) > floor[room]:
                yield f"include/{file} includes {used}, but {room}/ stands above {other or 'the umbrella'}/"
            if room in parts and other in parts and other != room and other not in parts[room]:
                yield f"include/{file} includes {used}, but the part {room}/ does not say that it uses {other}/"


REFERENCE = "docs/reference.md"
REFERENCE_HEAD = """# Reference

Every public name, with the header that has it: what stands in namespace `shardkit` and the namespaces in it, but for
those called `detail`. A name's namespace says who needs it. Headers are in the order of the
[rooms](architecture.md#rooms); `shardkit::` is left out. The docstring in the header says the rest.
`tests/tree/check.py write-reference .` makes this page out of the headers, and a test compares.
"""


def code_headers(root):
    """Those that have names of their own: compiled/ has those of other headers, for files of the compiled form."""
    return [file for file in library_files(root)
            if file.endswith((".hpp", ".cuh")) and not file.startswith(OF_THE_COMPILED_FORM)]


# Who needs the names of a namespace; a trainer needs those of all others.
TRAINER = "For who writes a trainer"
READERS = {"rules": "For who writes an optimizer or a policy", "engine": "For who writes an engine",
           "host": "For who writes an engine", "spi": "For who writes a part"}


def reader_of(name):
    return READERS.get(name.name.split("::")[0], TRAINER)


def reference_of(root, names):
    text = REFERENCE_HEAD
    place = {room: number for number, room in enumerate(listed_rooms(root))}
    for reader in dict.fromkeys([TRAINER, *READERS.values()]):
        told = sorted((name for name in names if reader_of(name) == reader and room_of(name.header) in place),
                      key=lambda name: (place[room_of(name.header)], name.header, name.line))
        text += f"\n## {reader}\n\n| name | | header |\n| --- | --- | --- |\n" if told else ""
        for name in told:
            sentence = name.sentence.replace("|", "\\|")
            text += f"| `{name.name}` | {sentence} | `{name.header.removeprefix('shardkit/')}` |\n"
    return text


def with_sections(lines):
    """(section, line) of each line of a page."""
    title, found = "its head", []
    for line in lines:
        title = line.removeprefix("## ") if line.startswith("## ") else title
        found.append((title, line))
    return found


def check_reference(root):
    """docs/reference.md is what the headers say, and they say something of every public name."""
    names = public_names(root, code_headers(root))
    for name in names:
        if not name.sentence:
            yield f"include/{name.header}:{name.line}: {name.name} is public and has no docstring with a first sentence"
    path = root / REFERENCE
    written = with_sections(lines_of(path) if path.exists() else [])
    expected = with_sections(reference_of(root, names).splitlines())
    told, said = set(written), set(expected)
    for title, line in [pair for pair in written if pair not in said]:
        yield f"{REFERENCE}, {title}: says what the headers do not say: {line}"
    for title, line in [pair for pair in expected if pair not in told]:
        yield f"{REFERENCE}, {title}: lacks {line}"
    if written != expected and told == said:
        yield f"{REFERENCE} has lines twice or in another order"


def write_reference(root):
    (root / REFERENCE).write_text(reference_of(root, public_names(root, code_headers(root))), encoding="utf-8")


# What turns a precision that a user names into values, and what names one for him. Elsewhere it is a value.
FACE = ("policy/precision.hpp", "sharded/sharded.hpp", "plan/planned_geometry.hpp",
        "machine/group_description.hpp", "factored/factored_plan.hpp", "muon/matrix_plan.hpp", "step/shard_runs.hpp",
        "step/local_shards.hpp", "step/gradients.hpp", "sharded/window.hpp", "sharded/fill_values.hpp",
        "backend/nccl/kernels_for.cuh",
        # Element types that become functions: a group's table of them, and the loops of a rule.
        "sharded/element_table.hpp", "sharded/host_conversions.hpp",
        "sharded/whole_tensor.hpp")


def check_parameters(root):
    """No template's parameter is an engine, and a precision is one of FACE alone."""
    for file in library_files(root):
        text = re.sub(r"//[^\n]*", "", (root / "include" / file).read_text(encoding="utf-8"))
        for found in re.finditer(r"<[^<>;{}()]*\b(?:class|typename) (Engine|Precision)(?:Type)?\b", text):
            if found[1] == "Engine" or file.removeprefix("shardkit/") not in FACE:
                line = text.count("\n", 0, found.end()) + 1
                yield f"include/{file}:{line}: a template's parameter is called {found[1]}, expected a value"


# The rooms in which a trainer's types become values, and the lines of code of their templates that shardkit.hpp has in the
# compiled form: each file of a trainer reads them. Those of param, policy and mesh are the types.
FACE_ROOMS = ("sharded", "step", "optim", "rank", "backend/self", "backend/threads", "compiled")
MOST_FACE = 920


def of_compiled_form(text):
    """The lines of a header that a trainer's file reads with SHARDKIT_COMPILED."""
    kept, conditions = [], []
    known = {"#ifdef SHARDKIT_COMPILED": True, "#ifndef SHARDKIT_COMPILED": False, "#ifdef SHARDKIT_CORE": False}
    for line in text.splitlines():
        if line.startswith("#if"):
            conditions.append(known.get(line))
        elif line == "#else":
            conditions[-1] = None if conditions[-1] is None else not conditions[-1]
        elif line == "#endif":
            conditions.pop()
        elif False not in conditions:
            kept.append(re.sub(r"\s*//.*", "", line))
    return [line for line in kept if line.strip()]


def template_lines(lines):
    """How many lines templates have, from `template <` to the end of what it declares."""
    count, text = 0, "\n".join(line for line in lines if not line.startswith("#"))
    begin = text.find("template <")
    while begin >= 0:
        at, depth, ends = begin, 0, False
        while not ends and at < len(text):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[at], 0)
            # Braces within a constructor's list of members are followed by more of it.
            closes = text[at] == "}" and not text[at + 1:].lstrip().startswith((",", "{"))
            ends = depth == 0 and (text[at] == ";" or closes)
            at += 1
        count += text.count("\n", begin, at) + 1
        begin = text.find("template <", at)
    return count


def face_lines(root):
    """The templates' lines of each header of FACE_ROOMS that shardkit.hpp reads in the compiled form."""
    read, waiting, found = set(), ["shardkit/shardkit.hpp"], {}
    while waiting:
        header = waiting.pop()
        if header in read or not (root / "include" / header).exists():
            continue
        read.add(header)
        lines = of_compiled_form((root / "include" / header).read_text(encoding="utf-8"))
        waiting += re.findall(r"^#include <(shardkit/[^>]+)>", "\n".join(lines), re.MULTILINE)
        if room_of(header) in FACE_ROOMS:
            found[header] = template_lines(lines)
    return found


def check_face(root):
    """What each file of a trainer reads of templates in these rooms does not grow."""
    lines = face_lines(root)
    if sum(lines.values()) > MOST_FACE:
        most = sorted(lines, key=lines.get, reverse=True)[:5]
        yield (f"the face has {sum(lines.values())} lines of templates, at most {MOST_FACE}; most of them in "
               + ", ".join(f"{header} ({lines[header]})" for header in most))


def check_errors(root):
    """What a user did wrong is said with the user's file and line, which core/error.hpp alone puts into a message."""
    for file in library_files(root):
        if file == "shardkit/core/error.hpp":
            continue
        for number, line in enumerate(lines_of(root / "include" / file), 1):
            code = line.split("//")[0]
            if re.search(r"\bthrow (shardkit::)?UsageError\b", code):
                yield f"include/{file}:{number}: use throw_usage_error(where, ...): {line.strip()}"
            if re.search(r"\bthrow (std::)?invalid_argument\b", code):
                yield f"include/{file}:{number}: use throw_invalid_argument(where, ...): {line.strip()}"


SOURCES = (".hpp", ".inc", ".cuh", ".h", ".cpp", ".cu", ".py", ".md", ".build", ".sh")


def sources(root):
    for top in ("include", "tests", "examples", "benchmarks", "scripts", "docs", "cmake", ".ci"):
        folder = root / top
        if folder.exists():
            yield from (path for path in sorted(folder.rglob("*"))
                        if path.suffix in SOURCES or path.name == "run")


def ends_of_others(lines):
    """The ends of namespaces that say another name than any that is open: a macro of the name may be lost, of which
    the formatter knows nothing."""
    opened = []
    for number, line in enumerate(lines, 1):
        if begin := re.match(r"(?:inline )?namespace ?(.*?) ?\{(  //.*)?$", line):
            opened.append(begin[1])
        elif end := re.match(r"\}  // namespace ?(.*)$", line):
            while opened and not opened[-1].endswith(end[1]):
                opened.pop()
            if not opened:
                yield number, line
            opened = opened[:-1]


def check_words(root):
    """Nothing is left over, every C++ file says its licence, a namespace's end says its name, and a docstring's label
    begins its line: the formatter joins lines where one above is too long. Processors' instructions are in assembly or
    public intrinsics: the builtins behind these come and go with the compilers' versions."""
    label = re.compile(r"^\s*///.*[^/\s].* (Order|Cost|Memory|Errors|Source|Threads|Numbers|Rule):  ")
    left_over = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for path in sources(root):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if left_over.search(line):
                yield f"{path.relative_to(root)}:{number}: left over: {line.strip()}"
            if label.search(line):
                yield f"{path.relative_to(root)}:{number}: a label within a line: {line.strip()}"
            if path.suffix != ".py" and "__builtin_ia32" in line:
                yield f"{path.relative_to(root)}:{number}: a builtin of the compiler's own: {line.strip()}"
        if path.suffix in (".hpp", ".inc", ".cuh", ".cpp", ".cu"):
            for number, line in ends_of_others(text.splitlines()):
                yield f"{path.relative_to(root)}:{number}: the end of a namespace that does not begin: {line}"
            beginning = text.splitlines()[:6]
            if not any(line.startswith("// SPDX-License-Identifier: Apache-2.0") for line in beginning):
                yield f"{path.relative_to(root)}: no line '// SPDX-License-Identifier: Apache-2.0' at its head"
        if path.suffix in (".hpp", ".cuh") and "#pragma once" not in text:
            yield f"{path.relative_to(root)}: no #pragma once"


def check_lengths(root):
    """A header has at most 300 lines of code: a docstring costs none of them."""
    no_code = re.compile(r"\s*(//|$|#include|#pragma once)")
    for file in library_files(root):
        count = sum(not no_code.match(line) for line in lines_of(root / "include" / file))
        if count > 300:
            yield f"include/{file}: {count} lines of code; a header has at most 300, not counting comments and includes"


# Where the version of meson.build stands again.
VERSIONS = [("include/shardkit/core/version.hpp", r'version = "([^"]+)"'), ("CITATION.cff", r"^version: (\S+)"),
            ("docs/versions.md", r"^revision = v(\S+)"), ("docs/versions.md", r"GIT_TAG v([^\s)]+)")]


def check_versions(root):
    def found(file, pattern):
        return re.findall(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)

    expected = found("meson.build", r"^  version: '([^']+)'")[0]
    macros = found("include/shardkit/core/version.hpp", r"^#define SHARDKIT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)")
    given = [("include/shardkit/core/version.hpp", [".".join(macros)])]
    for file, versions in given + [(file, found(file, pattern)) for file, pattern in VERSIONS]:
        if set(versions) != {expected}:
            yield f"{file}: version {', '.join(versions) or 'none'}, but meson.build has {expected}"


def check_figures(root):
    """README's figures are those of the page of results, by the name of the aim."""
    def rows(page):
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines_of(root / page)
                if line.startswith("|")]

    results = {row[0]: row[3] for row in rows("docs/benchmark_results.md") if len(row) > 3}
    shown = [row for row in rows("README.md") if len(row) == 4 and row[2].startswith("`")]
    for row in shown:
        if results.get(row[2]) != row[1]:
            yield f"README.md: {row[2]} is {row[1]}, but docs/benchmark_results.md has {results.get(row[2])}"
    if len(shown) != 3:
        yield f"README.md: {len(shown)} figures with the name of an aim; three are promised"

    page = (root / "examples/cuda_trainer/README.md").read_text(encoding="utf-8")
    trainers = [root / "examples/cuda_trainer" / name for name in ("before.hpp", "after.hpp")]
    done = subprocess.run(["diff", *trainers], stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    counts = [sum(line.startswith(mark) for line in done) for mark in "<>"]
    if "{} lines go, {} come;".format(*counts) not in page:
        yield "examples/cuda_trainer/README.md: by diff {} lines go, {} come".format(*counts)


def check_suites(root):
    """The table of docs/testing.md has every suite."""
    texts = [path.read_text(encoding="utf-8") for folder in ("tests", "examples")
             for path in sorted((root / folder).rglob("meson.build"))]
    suites = {name for text in texts for name in re.findall(r"suite(?::| =) '(\w+)'", text)}
    suites |= {line.split("/")[0] for line in lines_of(root / "tests/list.txt")}
    cells = [line.split("|")[1] for line in lines_of(root / "docs/testing.md") if line.startswith("| `")]
    told = {name.split("/")[0] for cell in cells for name in re.findall(r"`([\w/]+)`", cell)}
    for name in sorted(suites - told):
        yield f"docs/testing.md: the table of suites lacks {name}"
    for name in sorted(told - suites):
        yield f"docs/testing.md: the table has the suite {name}, which there is not"


def check_pages(root):
    """The site's contents have every page."""
    for page in unlisted_pages(root):
        yield f"docs/site/generate.py: CONTENTS lacks {page}.md"


def check_stages(root):
    """docs/testing.md has every stage of .ci/run, in its tier, and says when the second tier passed last."""
    text = (root / "docs/testing.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| ([a-z-]+) \| (first|second) \|", text, re.MULTILINE)
    stages = [(name, "second" if later else "first") for later, name in
              re.findall(r"^(later_)?stage ([a-z-]+) ", (root / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)]
    for name, tier in sorted(set(stages) - set(told)):
        yield f"docs/testing.md: the table of stages lacks {name} in the {tier} tier"
    for name, tier in sorted(set(told) - set(stages)):
        yield f"docs/testing.md: the table has the stage {name} in the {tier} tier, where .ci/run has none"
    if not re.search(r"^Both tiers passed last on \d{4}-\d\d-\d\d, at commit [0-9a-f]{7,40}\b", text, re.MULTILINE):
        yield "docs/testing.md: no line 'Both tiers passed last on DATE, at commit COMMIT'"


# Of the table "Where a question is answered": a question, a file, and a name that it has.
ROW_OF_A_QUESTION = re.compile(r"^\| ([^|]+\?) \| `([^`]+)` \| `(\w+)` \|$", re.MULTILINE)


def names_in(root, file):
    """The files that a page or a header leads to: what it names or links to, what it includes."""
    page = file.endswith(".md")
    path = root / ("docs" if page else "include/shardkit") / file
    if not path.is_file():
        return set()
    text = path.read_text(encoding="utf-8")
    if not page:
        return set(re.findall(r"^#include <shardkit/([^>]+)>", text, re.MULTILINE))
    text = ROW_OF_A_QUESTION.sub("", text)
    return set(re.findall(r"`([\w/]+\.(?:hpp|inc|cuh))`", text) + re.findall(r"\]\(([\w/]+\.md)[^)]*\)", text))


def check_questions(root):
    """docs/architecture.md says where a reader's questions are answered; each file has the name, and is found in at most
    two steps from the page without that table."""
    rows = ROW_OF_A_QUESTION.findall((root / "docs/architecture.md").read_text(encoding="utf-8"))
    near = names_in(root, "architecture.md")
    near |= {name for file in near for name in names_in(root, file)}
    for question, file, name in rows:
        path = root / "include/shardkit" / file
        if not path.is_file():
            yield f"docs/architecture.md: '{question}': there is no file {file}"
        elif not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")):
            yield f"docs/architecture.md: '{question}': {file} has no {name}"
        elif file not in near:
            yield f"docs/architecture.md: '{question}': {file} is more than two steps away"
    if len(rows) < 12:
        yield f"docs/architecture.md: {len(rows)} questions, expected at least 12"


def section(text, title, level="##"):
    """What stands below a heading of that level."""
    end = rf"(?=^#{{2,{len(level)}}} |\Z)"
    return re.search(rf"^{level} {title}\n(.*?){end}", text, re.MULTILINE | re.DOTALL)[1]


def promises(root):
    """What README promises: names of policies, engines and optimizers; and pages and examples that it links to, and
    commands."""
    text = (root / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[?`(\w+)", section(text, "Policies") + section(text, "Engines"), re.MULTILINE)
    optimizers = re.search(r"\[Optimizers\]\([^)]*\): ([\w, ]+) or your own", text.replace("\n", " "))[1]
    links = re.findall(r"\]\(((?:docs/\w+\.md|examples)[\w./]*)", text)
    return {*rows, *optimizers.split(", ")}, {*links, *re.findall(r"^(\w+/run)\b", text, re.MULTILINE)}


def check_first(root):
    """Each promise of README has tests in the first tier; a name that is promised stands in one of their sources, or in
    that of a test that has none."""
    told = first_words((root / "tests/first.txt").read_text(encoding="utf-8"))
    named, others = promises(root)
    promised = named | others
    for promise in sorted(promised - set(told)):
        yield f"tests/first.txt has no line for {promise}, which README.md promises"
    for promise in sorted(set(told) - promised):
        yield f"tests/first.txt has a line for {promise}, which README.md does not promise"
    listed = set(lines_of(root / "tests/list.txt"))
    for promise, names in told.items():
        sources = [name for name in names if name.endswith(".cpp")]
        for name in sorted(set(sources) - listed):
            yield f"tests/first.txt names {name}, which tests/list.txt lacks"
        texts = [(root / "tests" / name).read_text(encoding="utf-8") for name in set(sources) & listed]
        texts += [name for name in names if name not in sources]
        if promise not in others and not any(re.search(rf"\b{promise}\b", text) for text in texts):
            yield f"tests/first.txt: nothing for {promise} names it"


CHECKS = {"lists": check_lists, "umbrella": check_umbrella, "rooms": check_rooms, "floors": check_floors,
          "parameters": check_parameters, "face": check_face, "errors": check_errors, "words": check_words, "lengths": check_lengths,
          "reference": check_reference, "versions": check_versions,
          "figures": check_figures, "suites": check_suites, "first": check_first,
          "pages": check_pages, "stages": check_stages, "questions": check_questions}


def check_all(root):
    """Ends as tests/run does."""
    here = pathlib.Path(__file__)
    failed = [check for check in CHECKS if not is_right(check, root)]
    planted = subprocess.run([sys.executable, "-B", here.with_name("check_planted.py"), here, root], check=False)
    failed += ["planted"] if planted.returncode != 0 else []
    for check in failed:
        print(f"failed: tree/{check}")
    print(f"{len(CHECKS) + 1 - len(failed)} passed, {len(failed)} failed")
    return not failed


def is_right(check, root):
    """Prints what is wrong."""
    wrong = list(CHECKS[check](root))
    for line in wrong:
        print(line)
    if wrong and check in ("lists", "reference"):
        print(f"to bring them up to date: python3 tests/tree/check.py write-{check} .")
    return not wrong


WRITERS = {"write-lists": write_lists, "write-reference": write_reference}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in {*CHECKS, *WRITERS, "all"}:
        sys.exit(f"{__doc__}\nCHECK is one of {', '.join(CHECKS)}.")
    check, root = sys.argv[1], pathlib.Path(sys.argv[2])
    if check in WRITERS:
        WRITERS[check](root)
    else:
        sys.exit(0 if (check_all(root) if check == "all" else is_right(check, root)) else 1)


if __name__ == "__main__":
    main()
