# SPDX-License-Identifier: Apache-2.0
"""Charts by gnuplot, all in the look of examples/common/chart_style.gp."""
import dataclasses
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile

STYLE = pathlib.Path(__file__).resolve().parents[2] / "examples/common/chart_style.gp"
STAMP = re.compile(r"<!-- script ([0-9a-f]{16}), picture ([0-9a-f]{16}) -->\n$")


class NoGnuplot(Exception):
    """It is not there, or it failed; the text says which."""


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A script without terminal and style, and the size in pixels that it is made for."""
    width: int
    height: int
    script: str


def quoted(text):
    """Between quotes nothing is special: the style turns markup off."""
    return "'" + str(text).replace("'", "''").replace("\n", " ") + "'"


def style():
    return STYLE.read_text(encoding="utf-8").removeprefix('R"gnuplot(').removesuffix(')gnuplot"\n')


def script_of(drawing, kind):
    """All that gnuplot is told, but for the file's name."""
    return f"{style()}set terminal @as_{kind} size {drawing.width},{drawing.height}\n{drawing.script}"


def draw(drawings, kind="svg"):
    """{name: picture's bytes} of {name: Drawing}, by one process.
    @raise NoGnuplot"""
    if not drawings:
        return {}
    if shutil.which("gnuplot") is None:
        raise NoGnuplot("pictures need the command gnuplot, which was not found (Debian: gnuplot-nox)")
    with tempfile.TemporaryDirectory() as name:
        files = {key: pathlib.Path(name) / str(number) for number, key in enumerate(drawings)}
        script = "".join(f"reset\nset output\n{script_of(drawings[key], kind)}" .replace(
            "set terminal", f"set output {quoted(file)}\nset terminal", 1) for key, file in files.items())
        done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0 or done.stderr or not all(file.exists() for file in files.values()):
            raise NoGnuplot(f"gnuplot failed: {done.stderr.strip()[:500]}")
        return {key: file.read_bytes() for key, file in files.items()}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamped(picture, drawing):
    """An SVG without what shows nothing, and with what says of which drawing it is, whichever gnuplot drew it."""
    svg = picture.decode().replace(' stroke-linecap="butt" stroke-linejoin="miter"', "")  # which are so by themselves
    svg = re.sub(r"(<g [^>]*>\s*</g>|^\s*)\n", "", svg, flags=re.MULTILINE)
    return f"{svg}<!-- script {digest(script_of(drawing, 'svg'))}, picture {digest(svg)} -->\n"


def is_of(text, drawing):
    """Whether a stamped picture was made of this drawing, and not changed since."""
    found = STAMP.search(text)
    right = found and (digest(script_of(drawing, "svg")), digest(text[:found.start()]))
    return found is not None and found.groups() == right
