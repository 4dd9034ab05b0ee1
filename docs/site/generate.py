# SPDX-License-Identifier: Apache-2.0
"""generate.py ROOT OUT: lays out in OUT what Sphinx reads: the pages where they lie in the repository, and a page for
each room of the library, made by Doxygen and Breathe from the docstrings in its headers."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "examples/*/README.md",
         "benchmarks/results/README.md")
CONTENTS = (
    ("Begin", ("../README", "cuda_quickstart", "coming_from", "from_0_1", "from_llmc", "launching", "troubleshooting",
               "when_things_fail", "glossary")),
    ("Concepts", ("parameters", "layout", "meshes", "windows", "gradients", "policies", "precision", "optimizers",
                  "own_optimizer", "parts", "communicators", "numerics", "planner", "schedules", "checkpoints", "reshard")),
    ("Parallel training", ("parallel_training", "tensor_parallel", "context_parallel", "experts", "1024_gpus")),
    ("Engines", ("threads_engine", "mpi_engine", "cuda_engine", "gpu_checklist", "../examples/cuda_trainer/README")),
    ("Benchmarks", ("benchmarks", "benchmarks_collectives", "benchmarks_kernels", "benchmarks_policies",
                    "benchmarks_checkpoints", "benchmarks_peers", "benchmark_results",
                    "../benchmarks/results/README")),
    ("Project", ("architecture", "reference", "testing", "dependencies", "versions", "../CHANGELOG", "../CONTRIBUTING",
                 "../SECURITY")),
)


def rooms(root):
    """The library's folders with public headers, in the order of the page of the architecture."""
    listed = re.findall(r"^\| `([\w/]+)/` \|", (root / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [room for room in listed if room != "detail"]


def without_links_elsewhere(root, page, text, pages):
    """Links to sources, which are no pages, become their text: a site is read without the repository."""
    def mend(match):
        target = match[2].split("#")[0]
        if not target or "://" in target:
            return match[0]
        path = (root / page).parent.joinpath(target).resolve()
        if path in pages or path.suffix in (".svg", ".png"):
            return match[0]
        return match[1]
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", mend, part)
                   for part in parts)


def pages_of(root):
    return {path.resolve(): path.relative_to(root) for pattern in PAGES for path in root.glob(pattern)}


def unlisted_pages(root):
    """The pages on disk that CONTENTS lacks."""
    listed = {"docs/README"} | {str(pathlib.PurePosixPath("docs", name)) if not name.startswith("../") else name[3:]
                                for _, names in CONTENTS for name in names}
    return sorted({str(page.with_suffix("")) for page in pages_of(root).values()} - listed)


def write_pages(root, out):
    pages = pages_of(root)
    for path, page in pages.items():
        text = without_links_elsewhere(root, page, path.read_text(encoding="utf-8"), pages)
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text(text, encoding="utf-8")
    shutil.copytree(root / "docs/pictures", out / "docs/pictures")


def write_contents(out, api):
    with open(out / "docs/README.md", "a", encoding="utf-8") as index:
        for title, names in (*CONTENTS, ("API", tuple(f"api/{room.replace('/', '_')}" for room in api))):
            index.write(f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n" + "\n".join(names) + "\n```\n")


def is_defined(path, kind):
    """Not only declared, for another room's type."""
    if kind not in ("class", "struct"):
        return True
    location = xml.etree.ElementTree.parse(path).getroot().find("compounddef/location")
    return location is not None and location.get("bodyend") not in (None, "-1")


def write_api(root, out):
    """A page for each room, of what Doxygen finds in it; returns the folders of its XML."""
    doxyfile = (root / "docs/site/Doxyfile").read_text(encoding="utf-8")
    (out / "docs/api").mkdir()
    (out / "xml").mkdir()
    folders = {}
    for room in rooms(root):
        folder = f"xml/{room.replace('/', '_')}"
        given = (f"\nINPUT = {root}/include/shardkit/{room}\nOUTPUT_DIRECTORY = {out}\nXML_OUTPUT = {folder}\n"
                 f"STRIP_FROM_PATH = {root}/include\n")
        subprocess.run(["doxygen", "-"], input=doxyfile + given, text=True, check=True, stderr=subprocess.DEVNULL)
        found = [(each.get("kind"), each.find("name").text)
                 for each in xml.etree.ElementTree.parse(out / folder / "index.xml").getroot()
                 if is_defined(out / folder / f"{each.get('refid')}.xml", each.get("kind"))]
        for file in (out / folder).glob("namespace*.xml"):
            text = file.read_text(encoding="utf-8")
            text = re.sub(r"<innerclass.*?</innerclass>", "", text)  # types have an entry of their own
            text = re.sub(r"<memberdef (?:(?!</memberdef>).)*<type></type>.*?</memberdef>", "", text, flags=re.DOTALL)
            file.write_text(text, encoding="utf-8")  # deduction guides have no type, and Doxygen misreads some
        types = {name for kind, name in found if kind in ("class", "struct")}
        lines = [f"# {room}/", ""]
        for kind, name in found:
            if "detail" in name.split("::") or name.rsplit("::", 1)[0] in types or "<" in name:
                continue
            if kind in ("class", "struct", "concept"):
                members = "" if kind == "concept" else ":members:\n"
                lines.append(f"```{{doxygen{kind}}} {name}\n:project: {room}\n{members}```\n")
            elif kind == "namespace" and name.startswith("shardkit"):
                lines.append(f"```{{doxygennamespace}} {name}\n:project: {room}\n:content-only:\n:members:\n```\n")
        if len(lines) > 2:
            (out / f"docs/api/{room.replace('/', '_')}.md").write_text("\n".join(lines), encoding="utf-8")
            folders[room] = folder
    return folders


def main():
    root, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_pages(root, out)
    folders = write_api(root, out)
    write_contents(out, folders)
    version = re.search(r"^  version: '([^']+)'", (root / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)[1]
    (out / "facts.json").write_text(json.dumps({"version": version, "rooms": folders}), encoding="utf-8")
    shutil.copy(root / "docs/site/conf.py", out / "conf.py")


if __name__ == "__main__":
    main()
