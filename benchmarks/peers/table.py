# SPDX-License-Identifier: Apache-2.0
"""benchmarks/run table [--check]: writes docs/benchmark_results.md and its pictures from benchmarks/results/*.json, or
says whether they are what it would write (exit code 1 when not). --root FOLDER: of another tree."""
import argparse
import json
import pathlib
import sys

import chart
import row

PAGE = "docs/benchmark_results.md"
PICTURES = "docs/pictures/results"
RESULTS = "benchmarks/results"
RATIOS = ("times_faster", "times_the_cost")
INTRODUCTION = """# Results of the benchmarks

Written by `benchmarks/run table` from the files in benchmarks/results; how they are measured is in
[benchmarks](benchmarks.md). Change neither this page nor its pictures by hand.
"""


class BadResult(Exception):
    """A file that is no result."""


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def time_text(side):
    if "time_us" in side:
        return f"{row.four_digits(side['time_us']['median'])} us"
    return f"{side['instructions']:.0f} instructions" if "instructions" in side else "-"


def table_of(rows):
    lines = ["| what | ours | peer | figure | median | least | most | target | met |",
             "| --- | --- | --- | --- | --: | --: | --: | --- | --- |"]
    for made in rows:
        value = made["value"]
        lines.append("| " + " | ".join(cell(text) for text in (
            made["what"], f"{made['ours']['name']}, {time_text(made['ours'])}",
            f"{made['peer']['name']}, {time_text(made['peer'])}", made["figure"].replace("_", " "),
            row.four_digits(value["median"]), row.four_digits(value["min"]), row.four_digits(value["max"]),
            row.target_text(made["target"]), row.met_text(made))) + " |")
    return lines


def pictures_of(stem, rows):
    """(file name, title, SVG) for each part and figure that is a ratio."""
    parts = dict.fromkeys(made["part"] for made in rows)
    for part in parts:
        for figure in RATIOS:
            chosen = [made for made in rows if made["part"] == part and made["figure"] == figure]
            if chosen:
                title = f"{part}: {figure.replace('_', ' ')}"
                entries = [(f"{made['what']}: {made['ours']['name']} / {made['peer']['name']}",
                            made["value"]["median"], made["met"]) for made in chosen]
                yield f"{stem}_{part}_{figure}.svg", title, chart.bars(title, entries)


def section(stem, found):
    """The page's lines for a result, and its pictures by name."""
    machine = found["machine"]
    lines = [f"## {stem}", "",
             f"{found['date']}, {machine['processor']}, {machine['processors']} processors usable, "
             f"{machine['system']}, load before {machine['load_before']:.2f}; {found['rounds']} rounds"
             + (". **A quick run: a first look, no result.**" if found["quick"] else "."), ""]
    if machine["load_before"] > 0.5:
        lines += ["**Others used the machine at the same time.**", ""]
    pictures = list(pictures_of(stem, found["rows"]))
    for part in dict.fromkeys(made["part"] for made in found["rows"]):
        lines += [f"### {part}", ""]
        for name, title, _ in pictures:
            if title.startswith(f"{part}:"):
                lines += [f"![{title}]({PICTURES.removeprefix('docs/')}/{name})", ""]
        lines += [*table_of([made for made in found["rows"] if made["part"] == part]), ""]
    for title, member in (("Left out", "left_out"), ("Failed", "failed")):
        if found[member]:
            lines += [f"{title}:", "", *[f"- {cell(entry['part'])}, {cell(entry['what'])}: {cell(entry['why'])}"
                                         for entry in found[member]], ""]
    lines += ["Versions and flags of each side:", ""]
    lines += [f"- {cell(name)}: {cell(text)}" for name, text in sorted(found["versions"].items())]
    lines += [f"- {cell(name)}: " + ", ".join(f"{cell(key)} {cell(text)}" for key, text in sorted(facts.items()))
              for name, facts in sorted(found["sides"].items())]
    return [*lines, ""], {name: picture for name, _, picture in pictures}


def generate(root):
    """All files, by their path from the root."""
    files, lines = {}, [INTRODUCTION]
    results = sorted((root / RESULTS).glob("*.json"))
    for path in results:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["benchmark"] != "peers" or found["format"] != 1:
                raise BadResult(f"{path.name}: benchmark '{found['benchmark']}', format {found['format']}: expected "
                                "peers, 1")
            more, pictures = section(path.stem, found)
        except (ValueError, KeyError, TypeError) as error:
            raise BadResult(f"{path.name}: is no result of benchmarks/run peers: {error!r}") from None
        lines += more
        files.update({f"{PICTURES}/{name}": picture for name, picture in pictures.items()})
    if not results:
        lines.append("There are no results yet.\n")
    files[PAGE] = "\n".join(lines).rstrip("\n") + "\n"
    return files


def on_disk(root):
    return {f"{PICTURES}/{path.name}" for path in (root / PICTURES).glob("*.svg")}


def differences(root, files):
    for name, text in files.items():
        path = root / name
        if not path.exists():
            yield f"{name} is missing"
        elif path.read_text(encoding="utf-8") != text:
            yield f"{name} is not what the results say"
    for name in sorted(on_disk(root) - set(files)):
        yield f"{name} belongs to no result"


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for name in on_disk(root) - set(files):
        (root / name).unlink()


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/run table", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2], type=pathlib.Path)
    options = parser.parse_args()
    try:
        files = generate(options.root)
    except BadResult as error:
        print(f"table: error: {error}", file=sys.stderr)
        return 1
    if not options.check:
        write(options.root, files)
        return 0
    wrong = list(differences(options.root, files))
    for line in wrong:
        print(f"table: error: {line}: run benchmarks/run table", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
