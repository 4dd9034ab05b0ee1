# SPDX-License-Identifier: Apache-2.0
"""What the checks of the benchmark programs have in common. Each is called as check_NAME.py PROGRAM PAGE [--
LAUNCHER...]: PAGE documents the program, with what benchmarks.md beside it says of all; LAUNCHER starts MPI processes; without one there is no MPI.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks/common"))
from expectation import end, expect  # noqa: E402
from figures import four_digits, json_text  # noqa: E402
from picture_layout import layout_problems  # noqa: E402

PROGRAM = sys.argv[1]
NAME = pathlib.Path(PROGRAM).name
PAGE = "".join(path.read_text(encoding="utf-8") for path in (pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[2]).with_name("benchmarks.md")))
LAUNCHER = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
# By every program, and by those that time calls over sizes.
ALWAYS_REFUSED = [
    (["--rounds", "0"], "--rounds '0': expected a whole number from 1"),
    (["--json", "no/such/folder/a.json"], "--json 'no/such/folder/a.json': expected a file that can be written"),
]
SWEEP_REFUSED = [
    (["-b", "0"], "--minbytes '0': expected bytes from 1 to 1024G"),
    (["-b", "1T"], "--minbytes '1T': expected bytes"),
    (["-b", "99999999999999999999"], "--minbytes '99999999999999999999': expected bytes"),
    (["-b", "1M", "-e", "1K"], "--maxbytes '1K': expected at least --minbytes, 1048576 bytes"),
    (["-b", "1t"], "--minbytes '1t': expected bytes"),
    (["-i", "1K", "-f", "2"], "--stepfactor and --stepbytes: expected one of the two"),
    (["-i", "0"], "--stepbytes '0': expected bytes from 1 to 1024G"),
    (["-i", "1"], "--stepbytes '1': expected at most 100000 sizes"),
    (["-f", "1"], "--stepfactor '1': expected a whole number from 2"),
    (["-n", "0"], "--iters '0': expected a whole number from 1"),
    (["-n", "1.5"], "--iters '1.5': expected a whole number from 1"),
    (["-w", "-1"], "--warmup_iters '-1': expected a whole number from 0"),
    (["--ranks", "0"], "--ranks '0': expected a whole number from 1 to 4096"),
    (["-b", "x"], "--minbytes 'x': expected bytes from 1 to 1024G"),
    (["--pin", "yes"], "--pin 'yes': expected off or on"),
]


def run(flags, launcher=(), variables=None):
    return subprocess.run([*launcher, PROGRAM, *map(str, flags)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120, check=False, env={**os.environ, **(variables or {})})


def near(a, b, share=2e-3):
    """But for what is lost as results keep four digits of each number."""
    return abs(a - b) <= share * max(abs(a), abs(b))


def near_sum(total, exact, *quotients):
    """The same of a sum whose terms may be far larger than it is: a number has lost up to 5e-4 of itself, a quotient of
    two of them twice as much, and what each has lost adds up."""
    lost = 5e-4 * abs(total) + 1e-3 * sum(map(abs, quotients))
    return abs(total - exact - sum(quotients)) <= 1.01 * lost


def check_time(time):
    return set(time) == {"median", "min", "p95"} and 0 < time["min"] <= time["median"] <= time["p95"]


def report_of(folder, flags, launcher=()):
    """The JSON of a run that ends well, and the run."""
    path = folder / "result.json"
    done = run([*flags, "--json", path], launcher)
    text = " ".join(map(str, flags))
    expect(done.returncode == 0 and done.stderr == "", f"{text}: ends well", done)
    written = path.read_text(encoding="utf-8")
    report = json.loads(written)
    path.unlink()
    expect(written == json_text(report), f"{text}: a line a row, four digits a number, as benchmarks/common/figures.py says")
    expect(report["benchmark"] == NAME and report["format"] == 1 and not report["wrong"], f"{text}: head")
    return report, done


def printed_rows(done):
    return [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]


def check_refused(flags, text, launcher=(), variables=None):
    done = run(flags, launcher, variables)
    what = f"{' '.join(map(str, flags))} is refused with '{text}'"
    ours = [line for line in done.stderr.splitlines() if line.startswith(f"{NAME}: error: ")]
    expect(done.returncode == 2 and len(ours) == 1 and text in ours[0] and done.stdout == "", what, done)
    if not launcher:
        expect(len(done.stderr.splitlines()) == 1, f"{what}, in one line", done)


def check_refused_by_mpi():
    """Without MPI the program says so; with it, that a job has other processes than were asked for."""
    if not LAUNCHER:
        check_refused(["--engine", "mpi"], "--engine mpi: this program was built without MPI")
        return
    check_refused(["--engine", "mpi", "--ranks", "3"],
                  "--engine mpi: this job has 2 processes, but 3 ranks were given: expected mpirun -n 3",
                  [*LAUNCHER, "-n", "2"])


def members_of(value):
    """Names of all members within."""
    if isinstance(value, list):
        return {name for element in value for name in members_of(element)}
    if isinstance(value, dict):
        return set(value) | {name for element in value.values() for name in members_of(element)}
    return set()


def check_page(reports, heads):
    """The flags that the page gives the program are there, and it names the reports' members and shows the heads,
    however wide their columns are."""
    text = run(["--help"]).stdout.replace(",", " ")
    for line in PAGE.splitlines():
        if line.startswith(f"benchmarks/run {NAME}"):
            for word in line.split("#")[0].split()[2:]:
                expect(not word.startswith("-") or f" {word} " in text, f"the page's flag {word}")
    shown = [line.split() for line in PAGE.splitlines()]
    for head in heads:
        expect(head.split() in shown, f"the page shows the columns: {head}")
    for name in members_of(reports) - members_of([[r["machine"], r["build"]] for r in reports]):
        expect(f"`{name}`" in PAGE, f"the page names the JSON's member {name}")


def check_picture(folder, flags, labels):
    if shutil.which("gnuplot") is None:
        print("skipped: pictures, without gnuplot")
        return
    picture = folder / "picture.svg"
    done = run([*flags, "--plot", picture])
    expect(done.returncode == 0 and done.stderr == "", "a picture is drawn", done)
    text = picture.read_text(encoding="utf-8")
    for label in labels:
        expect(label in text, f"the picture shows '{label}'")
    problems = layout_problems(text)
    expect(not problems, "its texts can be read" + "".join(f"; {each}" for each in problems[:5]))


def check_one_file(folder, flags):
    """Neither result may replace the other, whatever the names."""
    if shutil.which("gnuplot") is None:
        return
    file, link = folder / "both.svg", folder / "link.svg"
    link.symlink_to(file)
    for name in (file, folder / "." / ".." / folder.name / "both.svg", link):
        check_refused([*flags, "--json", file, "--plot", name], f"--plot '{name}': expected another file than that of")
        expect(not file.exists(), "and nothing is left")
    link.unlink()


def check(checks, help_names, refused):
    """Calls every check with a folder for files, then looks at the help and at what must be refused."""
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = run(["--help"])
    expect(done.returncode == 0 and all(name in done.stdout for name in help_names), "--help", done)
    with tempfile.TemporaryDirectory() as name:
        for each in checks:
            each(pathlib.Path(name))
    for flags, text in [*ALWAYS_REFUSED, *refused]:
        check_refused(flags, text)
    end()
