# SPDX-License-Identifier: Apache-2.0
"""check_program.py PROGRAM: what train_gpt prints and writes, and that a run that fails leaves files as they were."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
PICTURE = pathlib.Path(__file__).resolve().parents[2] / "scripts/trace_picture.py"
SMALL = ["--batch", "4", "--sequence", "8", "--layers", "1", "--width", "8", "--heads", "2"]
wrong = []


def run(folder, *flags, small=SMALL, **how):
    return subprocess.run([PROGRAM, *small, *flags], cwd=folder, stdin=subprocess.DEVNULL, timeout=30, check=False,
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how})


def expect(condition, what, done=None):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        if done is not None:
            print(((done.stdout or b"")[-3000:] + (done.stderr or b"")[-3000:]).decode(errors="replace"))


def wait_for(started, begin):
    """Reads what a program prints up to a line; one that ends without it is wrong."""
    expect(any(line.startswith(begin) for line in started.stdout), f"a line '{begin.decode()}'")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def check_lines(folder):
    done = run(folder, "--steps", "40", "--mesh", "2x1x1")
    text = done.stdout.decode()
    expect(done.returncode == 0 and b"" == done.stderr, "a run ends well", done)
    expect("\r" not in text and "\x1b" not in text, "plain lines where there is no terminal", done)
    line = r"step +(\d+)/40  loss (\d\.\d{4})  norm \d+\.\d{3}  [\d,]+ tokens/s  \d+:\d\d left\n"
    steps = [int(step) for step, _ in re.findall(line, text)]
    expect(steps[0] == 1 and steps[-1] == 40 and 10 <= len(steps) <= 30 and steps == sorted(set(steps)),
           "about twenty lines of loss, tokens per second and time left", done)
    expect(re.search(r"^memory per rank, planned:\n(  \S.*\n){7}  total +\S+ \S+\n", text, re.MULTILINE) is not None,
           "the plan comes first", done)
    expect(re.search(r"^peak memory per rank: \S+ \S+ measured, \S+ \S+ planned \([+-]\d+\.\d\d %\)$", text, re.MULTILINE)
           is not None, "measured and planned memory", done)
    speeds = re.findall(r"([\d,]+) tokens/s", text)
    expect(speeds[-1] == speeds[-2], "the last line's speed is the one at the end", done)
    table = text[text.index("collectives per rank and step, measured (mean over the ranks) and planned:"):]
    rows = re.findall(r"^  (\w+) +([\w ]+?) +(\d+) calls +(\S+ \S+) +(\d+) calls +(\S+ \S+)$", table, re.MULTILINE)
    expect({row[0] for row in rows} == {"all_gather", "reduce_scatter", "all_reduce"}
           and all(row[2] == row[4] and row[3] == row[5] for row in rows), "measured and planned collectives agree", done)
    expect(re.search(r"^loss: \d\.\d{4} first, \d\.\d{4} last", table, re.MULTILINE) is not None, "first and last loss", done)


def check_defaults(folder):
    """What --help names as defaults, given one by one, trains the same."""
    text = subprocess.run([PROGRAM, "--help"], stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout
    named = re.findall(r"^ +(--[a-z-]+) .*\[([^\];]+)(?:; [^\]]*)?\]$", text, re.MULTILINE)
    alone = ("--steps", "--top", "--capacity", "--graph", "--every")  # refused without --experts, or --engine nccl
    defaults = {flag: value for flag, value in named if " " not in value and flag not in alone}
    expect(("--steps", "400") in named and len(defaults) >= 20 and defaults["--batch"] == "16", "--help names defaults")
    reports = []
    for number, flags in enumerate(([], [word for pair in defaults.items() for word in pair])):
        done = run(folder, "--steps", "2", "--save", f"saved{number}", "--json", "report.json", *flags, small=[])
        expect(done.returncode == 0, "a run with defaults, " + ("given" if flags else "not given"), done)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        reports.append({key: value for key, value in report.items() if not re.search("second|time|measured|peak|resident", key)})
    differing = [key for key in reports[0] if reports[0][key] != reports[1].get(key)]
    expect(reports[0].keys() == reports[1].keys() and not differing, f"the defaults are what --help says: {differing}")


def check_readme(folder):
    """README's run is the program's, on two processors."""
    readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    pasted = re.search(r"### What a run prints\n.*?```text\n(.*?)```", readme, re.DOTALL)[1]
    processors = sorted(os.sched_getaffinity(0))[:2]
    done = run(folder, "--steps", "2", small=[], preexec_fn=lambda: os.sched_setaffinity(0, processors))
    for piece in filter(None, re.split(r"^\.\.\.\n", pasted, flags=re.MULTILINE)):
        expect(piece in done.stdout.decode(), f"README's run, from '{piece.splitlines()[0]}' on", done)


def check_collectives(folder):
    """The plan is a mean over the ranks where tp splits the loss's numbers unevenly, and so is what was measured."""
    done = run(folder, "--steps", "2", "--mesh", "3x2x1", "--json", "a.json", small=["--batch", "9", *SMALL[2:]])
    rows = re.findall(r"^  \w+ +[\w ]+? +(\d+ calls +\S+ \S+) +(\d+ calls +\S+ \S+)$", done.stdout.decode(), re.MULTILINE)
    expect(done.returncode == 0 and len(rows) == 5 and all(measured == planned for measured, planned in rows),
           "measured and planned collectives agree with tp", done)
    report = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    expect(report["collectives_by_axes"] == report["planned_collectives_by_axes"], "and in the file", done)


def check_files(folder):
    """Names are relative to the caller's folder, whichever that is."""
    (folder / "text.txt").write_text("abcdefgh" * 100, encoding="utf-8")
    (folder / "results").mkdir()
    done = run(folder, "--steps", "12", "--text", "text.txt", "--json", "results/run.json", "--plot", "curve.svg",
               "--sample", "17")
    expect(done.returncode == 0, "a run with every file", done)
    expect(names(folder) == ["curve.svg", "results", "text.txt"] and names(folder / "results") == ["run.json"],
           "its files, and no others, are in the caller's folder", done)
    expect(b"text:  text.txt, 800 bytes" in done.stdout, "the text is that of the caller's folder", done)
    report = json.loads((folder / "results/run.json").read_text(encoding="utf-8"))
    expect(len(report["losses"]) == 12 and report["losses"][0] > report["losses"][-1], "12 losses, which fall", done)
    expect(not report["interrupted"] and report["allocations_per_steady_step"] == 0, "steady steps take no memory", done)
    expect(len(report["sample_bytes"]) == 17, "a sample of 17 bytes")
    printed = "".join(chr(byte) if 32 <= byte < 127 or byte in (9, 10) else f"\\x{byte:02x}" for byte in report["sample_bytes"])
    expect(done.stdout.endswith(b"sample:\n" + printed.encode() + b"\n") and "\\x" in printed,
           "the sample is printed, and nothing that a terminal would obey", done)
    (folder / "merges.txt").write_text("#version: 0.2\na b\nc d\nab cd\n", encoding="utf-8")
    done = run(folder, "--steps", "60", "--lr", "0.03", "--text", "text.txt", "--encoding", "merges.txt", "--vocabulary",
               "260", "--sample", "40")
    expect(done.returncode == 0 and b"text:  text.txt, 500 tokens" in done.stdout, "a text in tokens", done)
    expect(b"efghabcdefgh" in done.stdout[done.stdout.index(b"sample:"):], "and a sample of them as text", done)


def points_of_longest_line(svg):
    """Of all lines drawn, the one with the most points: the curve."""
    paths = re.findall(r"<path[^>]* d='([^']*)'", svg)
    return max(len(re.findall(r"[ML ]\s*-?\d[\d.]*,-?\d[\d.]*", path)) for path in paths)


def check_pictures(folder):
    if shutil.which("gnuplot") is None:
        print("left out, no gnuplot: pictures")
        return
    for steps in (23, 41):
        done = run(folder, "--steps", str(steps), "--plot", "curve.svg")
        svg = (folder / "curve.svg").read_text(encoding="utf-8")
        expect(done.returncode == 0 and svg.endswith("</svg>\n\n") or svg.rstrip().endswith("</svg>"), "a whole svg", done)
        points = points_of_longest_line(svg)
        expect(points == steps, f"a curve of {steps} points: {points}")
        expect("train_gpt full_shard on 2x1x1" in svg and "step" in svg, "title and axes")
    done = run(folder, "--steps", "5", "--plot", "curve.gif")
    expect(done.returncode == 2 and b"--plot 'curve.gif': expected a file name that ends in .png or .svg" in done.stderr, "no other picture", done)
    done = run(folder, "--steps", "5", "--plot", "curve.png")
    png = (folder / "curve.png").read_bytes()
    expect(done.returncode == 0 and png[:8] == b"\x89PNG\r\n\x1a\n" and png[-8:-4] == b"IEND", "a whole png", done)
    expect(names(folder) == ["curve.png", "curve.svg"], "and nothing else")


def check_unfinished(folder):
    """A run that is killed or fails leaves what was there; one that is interrupted writes what it reached."""
    for end in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        (folder / "old.json").write_text("old", encoding="utf-8")
        (folder / "new.svg").unlink(missing_ok=True)
        started = subprocess.Popen([PROGRAM, *SMALL, "--steps", "1000000", "--json", "old.json", "--plot", "new.svg"],
                                   cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(started, b"step ")
        started.send_signal(end)
        said = started.communicate()[1].decode()
        left = ["old.json"] if end == signal.SIGKILL else ["new.svg", "old.json"]
        expect(started.returncode == -end and names(folder) == left, f"{end.name} ends it, and leaves {left}")
        content = (folder / "old.json").read_text(encoding="utf-8")
        if end == signal.SIGKILL:
            expect(content == "old" and not said, "the old file is kept")
            continue
        report = json.loads(content)
        steps = len(report["losses"])
        expect(report["interrupted"] and 0 < steps == len(report["grad_norms"]) < report["steps"] == 1000000,
               f"{end.name}: the file holds the steps that were done")
        expect(re.fullmatch(rf"train_gpt: interrupted by {end.name} after step {steps} of 1000000: loss \d\.\d+, "
                            r"written to old\.json, written to new\.svg\n", said) is not None, f"{end.name} is told in a line: {said}")
    with subprocess.Popen([PROGRAM, *SMALL, "--steps", "1", "--sample", "1000000000"], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as started:
        wait_for(started, b"step 1/1  loss")
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=60)
    expect(started.returncode == -signal.SIGTERM, "a signal ends a sample too")
    (folder / "old.json").write_text("old", encoding="utf-8")
    (folder / "new.svg").unlink()
    done = run(folder, "--steps", "3", "--lr", "1e30", "--json", "old.json", "--plot", "new.svg", "--mesh", "4x1x1")
    expect(done.returncode == 1 and done.stderr.count(b"\n") == 1, "a run that diverges fails", done)
    expect(b"error: step 2: the loss is nan" in done.stderr and b"--lr 1e+30" in done.stderr, "it names step and loss", done)

    def no_space():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    for flag, name in (("--json", "old.json"), ("--plot", "new.svg")):
        done = run(folder, "--steps", "200", flag, name, preexec_fn=no_space)
        expect(done.returncode == 1 and f"writing '{name}' failed: File too large".encode() in done.stderr,
               f"{flag}: a disk without space is an error", done)
    expect(names(folder) == ["old.json"] and (folder / "old.json").read_text(encoding="utf-8") == "old",
           "the old file is kept")
    done = run(folder, "--steps", "200", "--save", "run", "--mesh", "2x1x1", preexec_fn=no_space)
    expect(done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"'run/step-00000200" in done.stderr
           and b"EFBIG" in done.stderr, "--save: the same, in a line", done)
    expect(names(folder / "run") == [], "and nothing of the step is left")
    (folder / "run").rmdir()


def end_by_signal(folder, *signals):
    """A run of many steps that saves, ended once it has made some."""
    flags = ["--steps", "1000000", "--save", "run", "--resume", "run", "--keep", "2", "--json", "run.json", "--mesh", "2x1x1"]
    started = subprocess.Popen([PROGRAM, *SMALL, *flags], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(started, b"step ")
    for end in signals:
        started.send_signal(end)
    return started.communicate()[1].decode(), started.returncode


def check_ended_and_saved(folder):
    """With --save, a signal is the end of the run after its step, which is saved; a second one ends it at once."""
    first = 0
    for end in (signal.SIGTERM, signal.SIGINT):
        said, code = end_by_signal(folder, end)
        report = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        done = first + len(report["losses"])
        expect(code == 0 and report["interrupted"] and report["first_step"] == first < done,
               f"{end.name} ends it with 0, steps {first} to {done}: {code} {said}")
        expect(re.fullmatch(rf"train_gpt: interrupted by {end.name} after step {done} of 1000000: loss \d\.\d+, saved in "
                            rf"run/step-{done:08}, written to run\.json\n", said) is not None, f"it says so: {said}")
        first = done
    done = run(folder, "--resume", "run", "--steps", str(first), "--sample", "4", "--json", "end.json")
    report = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    expect(done.returncode == 0 and b"no step is left to train" in done.stdout and report["losses"] == []
           and report["first_step"] == first and len(report["sample_bytes"]) == 4,
           "what was saved is whole, and a sample of it can be had", done)
    before = names(folder / "run")
    expect(len(before) == 2, f"two steps are kept: {before}")
    _, code = end_by_signal(folder, *[signal.SIGTERM] * 50)
    steps = [name for name in names(folder / "run") if ".tmp-" not in name]
    expect(code in (0, -signal.SIGTERM), f"many signals end it at once: {code}")
    done = run(folder, "--resume", "run", "--steps", "1000001", "--plan")
    expect(done.returncode == 0 and f"resume: 'run/{steps[-1]}', after step".encode() in done.stdout,
           f"and nothing is half-written: {steps}", done)


def check_small_address_spaces(folder):
    """A run with too little of it fails in a line; OpenBLAS would ask for its memory without end."""
    seen = set()
    for mebibytes in (60, 150, 300, 420, 540, 660, 900, 2000):
        def limit(size=mebibytes << 20):
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        try:
            done = run(folder, "--steps", "2", "--mesh", "2x1x1", preexec_fn=limit)
        except subprocess.TimeoutExpired:
            expect(False, f"{mebibytes} MiB of address space: ends")
            continue
        ends = done.returncode == 0 or done.stderr.count(b"\n") == 1
        expect(ends, f"{mebibytes} MiB of address space: ends, and with one line if it fails: {done.returncode}", done)
        seen.add((done.returncode, b"ulimit -v" in done.stderr))
    expect({(0, False), (1, True)} <= seen, f"some are too small, and one is not: {seen}")


def check_special_files(folder):
    done = run(folder, "--steps", "2", "--json", "/dev/full")
    expect(done.returncode == 1 and b"writing '/dev/full' failed: No space" in done.stderr, "--json /dev/full fails", done)
    done = run(folder, "--steps", "2", "--json", "/dev/stdout")
    report = json.loads(done.stdout[done.stdout.index(b"\n{") + 1:])
    expect(done.returncode == 0 and len(report["losses"]) == 2, "--json /dev/stdout", done)
    with open(folder / "all.txt", "wb") as out:
        done = run(folder, "--steps", "2", "--json", "/dev/stdout", stdout=out)
    text = (folder / "all.txt").read_text(encoding="utf-8")
    expect(text.startswith("model:") and len(json.loads(text[text.index("\n{") + 1:])["losses"]) == 2,
           "a file that is standard output is added to", done)
    os.remove(folder / "all.txt")
    (folder / "real.json").write_text("old", encoding="utf-8")
    (folder / "real.json").chmod(0o640)
    os.symlink("real.json", folder / "link.json")
    done = run(folder, "--steps", "2", "--json", "link.json")
    expect((folder / "link.json").is_symlink() and (folder / "real.json").read_bytes().startswith(b"{")
           and (folder / "real.json").stat().st_mode & 0o777 == 0o640, "a link stays one, and modes stay", done)
    for flags in ((), ("--plan",), ("--help",)):
        with open("/dev/full", "wb") as full:
            done = run(folder, "--steps", "2", *flags, stdout=full)
        expect(done.returncode == 1 and done.stderr.count(b"error: standard output could not be written") == 1,
               f"output that is lost is an error: {' '.join(flags)}", done)


def check_inputs_stay(folder):
    """No result is written over what a run reads, whatever the paths are called."""
    (folder / "text.txt").write_text("abcdefgh" * 100, encoding="utf-8")
    os.link(folder / "text.txt", folder / "hard.txt")
    os.symlink("text.txt", folder / "link.txt")
    os.mkfifo(folder / "fifo")
    for text in ("fifo", "/dev/zero"):
        done = run(folder, "--steps", "2", "--text", text)
        expect(done.returncode == 2 and b"expected a regular file" in done.stderr, f"--text {text} is refused", done)
    done = run(folder, "--steps", "2", "--save", "run")
    expect(done.returncode == 0, "a run to begin from", done)
    step = "run/step-00000002"
    for flags, said in ((["--text", "text.txt", "--json", "text.txt"], "--json 'text.txt' would be written over --text"),
                        (["--text", "text.txt", "--trace", "../" + folder.name + "/hard.txt"], "would be written over --text"),
                        (["--text", "link.txt", "--plot", "text.txt"], "would be written over --text"),
                        (["--init", f"{step}/model.safetensors", "--schedule-out", f"./{step}/model.safetensors"],
                         "would be written over --init")):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        done = run(folder, "--steps", "2", *flags)
        expect(done.returncode == 2 and said in done.stderr.decode(), f"refused: {' '.join(flags)}", done)
        expect(before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}, "and nothing changed")
    done = run(folder, "--steps", "2", "--resume", "run", "--save", "run", "--json", "run/new.json", "--trace", "/dev/null",
               "--plot", "curve.svg")
    expect(done.returncode == 0 and (folder / "run/new.json").exists(), "other files beside a run are written", done)


def draw(folder, name):
    return subprocess.run([sys.executable, "-B", PICTURE, f"{name}.json", f"{name}.svg", "A < step"], cwd=folder,
                          capture_output=True, check=False)


def pieces(folder, name):
    """The slices of a drawn trace as (name, left, width, y, fill), and its texts."""
    root = xml.etree.ElementTree.parse(folder / f"{name}.svg").getroot()
    found = [(g[0].text.rpartition(",")[0], float(g[1].get("x")), float(g[1].get("width")), float(g[1].get("y")), g[1].get("fill"))
             for g in root.iter("{http://www.w3.org/2000/svg}g")]
    return found, [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def check_picture(folder, tracks):
    """Every slice of a trace lies in its picture where it lies in time, in the row of its rank and lane."""
    expect(draw(folder, "t").returncode == 0, "a measured trace is drawn")
    drawn, texts = pieces(folder, "t")
    slices = [(*each, track) for track in sorted(tracks) for each in tracks[track]]
    first = min(each[0] for each in slices)
    left = min(each[1] for each in drawn)
    unit = max(each[1] + each[2] - left for each in drawn) / max(each[0] + each[1] - first for each in slices)
    rows = sorted({each[3] for each in drawn})
    expect(len(rows) == 9, "with a row for each rank and lane")
    # By row before time: slices of other ranks may begin at the same.
    wanted = sorted((name, rows[3 * rank + lane], (at - first) * unit) for at, _, name, (rank, lane) in slices)
    got = sorted((name, y, x - left) for name, x, _, y, _ in drawn)
    expect(len(wanted) == len(got) and all(a[:2] == b[:2] and abs(a[2] - b[2]) < 0.3 for a, b in zip(wanted, got)),
           "and each slice in its row, at its time")
    expect(all((fill == "url(#waits)") == name.startswith("wait at ") for name, _, _, _, fill in drawn), "waits are hatched")
    expect(all(f"rank {rank}  {lane}" in texts for rank in range(3) for lane in ("compute", "gather", "reduce")) and "A < step" in texts
           and "blocks.0" in texts, "and ranks, lanes, groups and the title are named")
    # A simulated step, as schedule_trace writes it: one rank without a name.
    (folder / "s.json").write_text(json.dumps({"traceEvents": [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "compute"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "gather"}},
        {"name": "gather of 'a', microbatch 0", "ph": "X", "pid": 0, "tid": 1, "ts": 1000, "dur": 2000},
        {"name": "close of 'a', microbatch 0", "ph": "X", "pid": 0, "tid": 0, "ts": 3000, "dur": 6000}]}), encoding="utf-8")
    expect(draw(folder, "s").returncode == 0, "a simulated trace is drawn")
    drawn, texts = pieces(folder, "s")
    expect([each[0][:6] for each in drawn] == ["close ", "gather"] and abs(drawn[0][2] - 3 * drawn[1][2]) < 0.1
           and abs(drawn[0][1] - drawn[1][1] - drawn[1][2]) < 0.1 and "8 ms" in texts and "compute" in texts
           and drawn[0][1] + drawn[0][2] < 760, "in its times, within the picture")
    (folder / "e.json").write_text('{"traceEvents": []}', encoding="utf-8")
    done = draw(folder, "e")
    expect(done.returncode == 2 and done.stderr == b"trace_picture: error: e.json: has no slice, expected a trace of a step\n",
           "a trace of nothing is an error")
    # What cannot be read, is no trace, or cannot be written is said in a line.
    for name, text in (("n", "step 1"), ("o", "{}"), ("l", "[1]"), ("s2", '{"traceEvents": [{"ph": "X", "name": "?"}]}')):
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        done = draw(folder, name)
        expect(done.returncode == 2 and done.stderr.decode() == f"trace_picture: error: {name}.json: expected a trace, as train_gpt "
               "--trace writes it\n" and not (folder / f"{name}.svg").exists(), f"what is no trace is an error: {text}", done)
    for names, what in ((("gone.json", "x.svg"), "gone.json: No such file or directory"),
                        (("s.json", "gone/x.svg"), "gone/x.svg: No such file or directory"),
                        (("s.json", "/dev/full"), "/dev/full: No space left on device"),
                        (("s.json", "./s.json"), "./s.json: expected another file than the trace")):
        before = (folder / "s.json").read_bytes()
        done = subprocess.run([sys.executable, "-B", PICTURE, *names], cwd=folder, capture_output=True, check=False)
        expect(done.returncode == 2 and done.stderr.decode() == f"trace_picture: error: {what}\n"
               and (folder / "s.json").read_bytes() == before, f"and so is {what}", done)


def check_trace(folder):
    """A track for each rank and lane; in none do slices overlap, and those of a rank's own leave no gap."""
    done = run(folder, "--steps", "3", "--mesh", "3x1x1", "--schedule", "prefetch", "--trace", "t.json", "--json", "a.json",
               small=["--batch", "6", *SMALL[2:]])
    events = json.loads((folder / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    expect(done.returncode == 0 and [e["args"]["name"] for e in events if e["name"] == "process_name"]
           == ["rank 0", "rank 1", "rank 2"], "--trace names every rank", done)
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"], event["name"]))
    expect(sorted(tracks) == [(rank, lane) for rank in range(3) for lane in range(3)], "and has its three lanes")
    within = 0.002  # microseconds: times have three digits
    steps, waits, moved = [], [], []
    for (_, lane), slices in tracks.items():
        slices.sort()
        gaps = [later[0] - earlier[0] - earlier[1] for earlier, later in zip(slices, slices[1:])]
        expect(all(gap > -within for gap in gaps), "no slices of a lane overlap")
        if lane == 0:
            expect(all(abs(gap) < within for gap in gaps), "no moment of a rank is missing")
            steps.append(sum(each[1] for each in slices))
            waits.append(sum(each[1] for each in slices if each[2].startswith("wait at ")))
        else:
            moved.append(sum(each[1] for each in slices))
    timed = json.loads((folder / "a.json").read_text(encoding="utf-8"))["timed_steps"]
    for measured, key in ((steps, "seconds"), (waits, "exposed_seconds"), (moved, "communication_seconds")):
        expect(abs(sum(measured) / 3e6 - timed[key]) < 1e-6, f"its {key} are those of --json")
    names_of = [slices[2] for lane, each in tracks.items() if lane[1] == 1 for slices in each]
    expect(names_of.count("gather of 'blocks.0', microbatch 0") == 6, "a block is gathered twice by each rank")
    check_picture(folder, tracks)
    for flags, text in ((["--schedule", "none"], b"--trace with --schedule none: expected prefetch or auto"),
                        (["--policy", "no_shard"], b"--trace: with --schedule auto this step has no schedule (no "),
                        (["--schedule", "auto", "--json", "x"], b"--trace './x': expected another file than that of --json")):
        done = run(folder, "--trace", "./x", *flags)
        expect(done.returncode == 2 and text in done.stderr and not (folder / "x").exists(), f"refused: {text}", done)



def check_schedules(folder):
    """A schedule changes no loss; its file is a table; a limit that is too small is an error before anything runs."""
    reports = {}
    for name in ("none", "auto", "prefetch:2"):
        done = run(folder, "--steps", "3", "--mesh", "2x1x1", "--schedule", name, "--json", "a.json", "--schedule-out", "a.txt")
        reports[name] = json.loads((folder / "a.json").read_text(encoding="utf-8"))
        table = (folder / "a.txt").read_text(encoding="utf-8")
        expect(done.returncode == 0 and table.startswith(f"--schedule {name}:\n     0  "),
               f"--schedule {name} ends well and writes its table", done)
        expect(reports[name]["schedule"]["name"] == name and reports[name]["losses"] == reports["none"]["losses"]
               and reports[name]["grad_norms"] == reports["none"]["grad_norms"], "it has the losses of none")
        # With a processor to spare gathers start ahead too.
        of_auto = ("keep_gathered", "prefetch:1, keep_gathered", "keep_gathered, prefetch:1")
        of_auto = of_auto[1:] if len(os.sched_getaffinity(0)) > 2 else of_auto[:1]
        follows, why = {"none": (["none"], "asked for"), "auto": (of_auto, r"predicted waiting \d\d? % of that without a schedule"),
                        "prefetch:2": (["prefetch:2"], "asked for")}[name]
        expect(reports[name]["schedule"]["follows"] in follows and re.fullmatch(why, reports[name]["schedule"]["why"]) is not None,
               f"--json says what it follows, and why: {reports[name]['schedule']}")
        if name == "none":
            expect("timed_steps" not in reports[name] and b"a step: " not in done.stdout, "what follows no schedule is not timed", done)
        else:
            timed = reports[name]["timed_steps"]
            # A rank makes its collectives itself where none starts ahead.
            ahead = "prefetch" in reports[name]["schedule"]["follows"]
            expect(timed["steps"] == 1 and 0 < timed["communication_seconds"] and 0 < timed["exposed_seconds"] < timed["seconds"]
                   and (ahead or timed["communication_seconds"] <= timed["exposed_seconds"])
                   and abs(timed["exposed_share"] - timed["exposed_seconds"] / timed["communication_seconds"]) < 1e-9
                   and b"a step: " in done.stdout, f"the last step is timed: {timed}", done)
        expect(name == "none" or f", hash {reports[name]['schedule']['hash']}\n" in table, "and its hash")
    gathers = {name: reports[name]["collectives_by_axes"]["dp"]["all_gather"]["count"] for name in ("auto", "none")}
    expect(gathers["auto"] < gathers["none"],
           "auto gathers less")
    done = run(folder, "--steps", "3", "--mesh", "2x1x1", "--json", "a.json")
    report = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    expect(done.returncode == 0 and report["schedule"] == reports["auto"]["schedule"] and report["losses"] == reports["none"]["losses"]
           and f"step:  schedule {reports['auto']['schedule']['follows']} (predicted waiting ".encode() in done.stdout, "auto is the default", done)
    done = run(folder, "--memory-limit", "1K", "--schedule", "auto", "--schedule-out", "b.txt")
    expect(done.returncode == 2 and re.fullmatch(rb"train_gpt: error: --memory-limit 1024: with --schedule auto each rank "
                                                 rb"needs at least \d+ bytes \(\S+ \S+\)\n", done.stderr) is not None
           and names(folder) == ["a.json", "a.txt"], "a limit that is too small is told with both figures", done)
    done = run(folder, "--json", "a.json", "--schedule-out", "./a.json")
    expect(done.returncode == 2 and b"--schedule-out './a.json': expected another file than that of --json" in done.stderr,
           "one file for two results is refused", done)


def check_plan(folder):
    done = run(folder, "--plan", "--steps", "9", "--json", "a.json", "--sample", "3", "--mesh", "64x1x1", "--batch", "64")
    expect(done.returncode == 2 and b"--batch" in done.stderr, "a flag given twice is refused", done)
    done = run(folder, "--plan", "--steps", "9", "--json", "a.json", "--plot", "a.svg", "--sample", "3", "--mesh", "4x1x1")
    expect(done.returncode == 0 and not names(folder), "--plan takes a whole command line, and writes nothing", done)
    for each, crosses in ((2, True), (4, False)):
        done = run(folder, "--plan", "--mesh", "4x1x1", "--ranks-per-host", str(each))
        expect(done.returncode == 0 and (re.search(rb"^  all_gather +dp +\d+ calls +\S+ \S+ +\S+ \S+ between hosts$", done.stdout,
                                                   re.MULTILINE) is not None) == crosses,
               f"--plan of 4 ranks, {each} to a host", done)
    for flag, name in (("--json", "no/a.json"), ("--plot", "no/a.svg"), ("--text", "no.txt")):
        done = run(folder, "--plan", flag, name)
        expect(done.returncode == 2 and f"{flag} '{name}'".encode() in done.stderr, f"--plan checks {flag}", done)
    for name in ("a.svg", "./a.svg", "no/../a.svg"):
        done = run(folder, "--json", "a.svg", "--plot", name)
        expect(done.returncode == 2 and f"--plot '{name}': expected another file".encode() in done.stderr
               and not names(folder), "one file for two results is refused, whatever its names", done)


def main():
    for check in (check_lines, check_defaults, check_readme, check_collectives, check_files, check_pictures, check_unfinished,
                  check_ended_and_saved, check_small_address_spaces, check_special_files, check_inputs_stay, check_schedules, check_trace, check_plan):
        with tempfile.TemporaryDirectory(prefix="shardkit-train-gpt-") as name:
            check(pathlib.Path(name).resolve())
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
