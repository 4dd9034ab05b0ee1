# SPDX-License-Identifier: Apache-2.0
"""check.py PROGRAM PICTURES CONCEPTS: mesh_picture draws the pictures of the documentation byte for byte, its pictures show what
the policies say (counted element by element, without the library), and it refuses what it cannot draw.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
# Rows, columns, and the dimension that tp splits.
PARAMETERS = {"embedding": (64, 24, 0), "qkv": (72, 24, 0), "projection": (24, 24, 1), "bias": (1, 24, None),
              "norm": (1, 24, None)}
# Stacks of 16 experts, a row each; of a vector each column is one.
EXPERTS = {"up": (16, 24, 1), "down": (16, 24, 1), "scale": (1, 16, None)}
KINDS = ("parameters", "gradients before reducing", "reduced gradients", "optimizer states")
# How many neighbouring data ranks share out one copy of each kind; 0: all of dp; ALL: of dp and cp.
ALL = -1
SHARED_BY = {
    "no_shard": (1, 1, 1, 1),
    "shard_optimizer": (1, 1, 0, 0),
    "shard_grad_op": (1, 0, 0, 0),
    "full_shard": (0, 0, 0, 0),
    "hybrid_shard:2": (2, 2, 2, 2),
    "hybrid_optimizer:2": (2, 2, ALL, ALL),
    "secondary_shard:2": (ALL, ALL, ALL, ALL),
}
MESHES_OF_EXPERTS = (((4, 1, 1), 4), ((4, 2, 1), 2), ((8, 1, 1), 2), ((2, 1, 1), 1))
MESHES = ((1, 1, 1), (4, 1, 1), (2, 2, 2), (4, 4, 1), (2, 1, 3), (16, 2, 1))
# Bytes of a tp rank's buffer on mesh 2x2x2: 32x24 + 36x24 + 24x12 + 24 + 24 elements, vectors padded to 32.
BUFFER = 4 * (768 + 864 + 288 + 32 + 32)
# Over dp, cp, tp and the world of 2x2x2; tp sums on the ranks that hold bias and norm.
OVER_DP, OVER_CP = {"0 4", "1 5", "2 6", "3 7"}, {"0 1", "2 3", "4 5", "6 7"}
OVER_TP, OVER_WORLD = {"4 6", "5 7"}, {"0 1 2 3 4 5 6 7"}
COLLECTIVES = [  # of mesh 2x2x2 under full_shard with three microbatches
    ("unshard, forward", "all_gather", "dp", 3, OVER_DP, 3 * BUFFER // 2),
    ("unshard, backward", "all_gather", "dp", 3, OVER_DP, 3 * BUFFER // 2),
    ("add gradients", "reduce_scatter", "dp", 3, OVER_DP, 3 * BUFFER // 2),
    ("reduce", "all_reduce", "cp", 1, OVER_CP, None),
    ("reduce", "all_reduce", "tp", 1, OVER_TP, None),
    ("global_norm", "all_reduce", "world", 1, OVER_WORLD, None),
]
REFUSED = [
    (["--mesh", "2x2", "--out", "a.svg"], "--mesh '2x2': expected DPxTPxCP"),
    (["--mesh", "2x0x1", "--out", "a.svg"], "--mesh '2x0x1': expected DPxTPxCP, three whole numbers of at least 1"),
    (["--mesh", "2x2x2x2", "--out", "a.svg"], "--mesh '2x2x2x2': expected DPxTPxCP"),
    (["--mesh", "-1x1x1", "--out", "a.svg"], "--mesh '-1x1x1': expected DPxTPxCP"),
    (["--mesh", "65x1x1", "--out", "a.svg"], "--mesh '65x1x1': expected at most 64 ranks"),
    (["--mesh", "4294967296x4294967296x1", "--out", "a.svg"], "expected at most 64 ranks"),
    (["--mesh", "1x3x1", "--out", "a.svg"], "--mesh '1x3x1': 'model' parameter 'embedding' of shape [64, 24] is split "
     "along dimension 0 over tp = 3, expected an extent that 3 divides"),
    (["--mesh", "2x1x1", "--policy", "zero", "--out", "a.svg"], "--policy 'zero': expected no_shard, shard_optimizer"),
    (["--mesh", "2x1x1", "--policy", "hybrid_shard", "--out", "a.svg"], "--policy 'hybrid_shard': expected no_shard"),
    (["--mesh", "2x1x1", "--policy", "hybrid_shard:0", "--out", "a.svg"], "secondary_shard:N with N ranks in a group"),
    (["--mesh", "4x1x1", "--policy", "hybrid_shard:3", "--out", "a.svg"],
     "--policy 'hybrid_shard:3': expected a group that divides the 4 data-parallel ranks of --mesh 4x1x1"),
    (["--mesh", "2x1x2", "--ep", "2", "--out", "a.svg"], "--ep '2': expected a mesh with cp = 1"),
    (["--mesh", "4x1x1", "--ep", "3", "--out", "a.svg"], "ExpertMesh: ep = 3 on dp = 4 x cp = 1, expected a number that divides 4"),
    (["--mesh", "2x1x1", "--microbatches", "0", "--out", "a.svg"], "--microbatches '0': expected a whole number from 1"),
    (["--mesh", "2x1x1", "--out", "a.png"], "--out 'a.png': expected a name that ends in .svg"),
    (["--mesh", "2x1x1", "--out", "no/such/folder.svg"], "--out 'no/such/folder.svg': expected a file that can be"),
    (["--mesh", "2x1x1"], "no --out: expected --out FILE.svg"),
    (["--out", "a.svg"], "no --mesh: expected --mesh DPxTPxCP"),
    (["--mesh", "2x1x1", "--out"], "--out"),
    (["--rows", "2"], "unknown argument '--rows': expected one of the flags that --help lists"),
]


def run(program, arguments, folder):
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def draw(program, folder, mesh, policy, microbatches=1, ep=None):
    name = pathlib.Path(folder, "drawn.svg")
    done = run(program, ["--mesh", "x".join(map(str, mesh)), "--policy", policy, "--microbatches", str(microbatches),
                         "--out", name, *(["--ep", str(ep)] if ep else [])], folder)
    if done.returncode != 0:
        raise SystemExit(f"mesh {mesh}, {policy}: exited with {done.returncode}: {done.stderr}")
    return name.read_bytes()


def check_documentation(program, pictures, folder):
    """Each picture says which command drew it."""
    found = sorted(pictures.glob("*.svg"))
    if not found:
        yield f"no pictures in {pictures}"
    for path in found:
        shown = path.read_bytes()
        command = re.search(rb"mesh_picture --mesh (\d+)x(\d+)x(\d+)(?: --ep (\d+))? --policy (\S+) --microbatches (\d+)<", shown)
        if command is None:
            yield f"{path.name}: does not say which command drew it"
            continue
        *mesh, ep, policy, microbatches = (part and part.decode() for part in command.groups())
        if draw(program, folder, mesh, policy, microbatches, ep) != shown:
            yield f"{path.name}: another picture is drawn now; draw it anew: examples/mesh_picture/run --mesh " \
                  f"{'x'.join(mesh)}{' --ep ' + ep if ep else ''} --policy {policy} --microbatches {microbatches} --out docs/pictures/{path.name}"


def groups(element, name):
    return [each for each in element.iter(SVG + "g") if each.get("class") == name]


def cells(rectangle, whole, unit):
    """(row, column) of every element under a rectangle, row-major; refuses one that does not lie on the elements."""
    offsets = [(float(rectangle.get(key)) - float(whole.get(key))) / unit[key in ("y", "height")] for key in ("x", "y")]
    extents = [float(rectangle.get(key)) / unit[key in ("y", "height")] for key in ("width", "height")]
    if any(value != int(value) for value in offsets + extents):
        raise ValueError(f"a rectangle at {offsets} of {extents} elements")
    (left, top), (width, height) = map(int, offsets), map(int, extents)
    return [(top + row, left + column) for row in range(height) for column in range(width)]


def part_of(name, tp, index, ep=1, ep_index=0):
    """The elements that rank `index` of `tp` has of a parameter, row-major; of experts those of rank `ep_index` of `ep`."""
    rows, columns, split = {**PARAMETERS, **EXPERTS}[name]
    extents = [(0, rows), (0, columns)]
    if name in EXPERTS:
        stack = 0 if rows > 1 else 1
        size = extents[stack][1] // ep
        extents[stack] = (ep_index * size, (ep_index + 1) * size)
    if split is not None:
        size = extents[split][1] // tp
        extents[split] = (index * size, (index + 1) * size)
    return [(row, column) for row in range(*extents[0]) for column in range(*extents[1])]


def read_tensor(tensor, part):
    """The elements that are drawn as held. Each rectangle shows the range of the part that it names."""
    unit = [float(number) for number in tensor.get("data-unit").split()]
    by_class = {}
    for rectangle in tensor.iter(SVG + "rect"):
        by_class.setdefault(rectangle.get("class"), []).append(rectangle)
    whole = by_class["whole"][0]
    rows, columns, _ = {**PARAMETERS, **EXPERTS}[tensor.get("data-parameter")]
    if len(cells(whole, whole, unit)) != rows * columns or cells(by_class["part"][0], whole, unit) != part:
        raise ValueError("the outline or the part of tp is drawn wrongly")
    held = []
    for rectangle in by_class.get("held", []):
        begin, end = int(rectangle.get("data-begin")), int(rectangle.get("data-end"))
        shown = cells(rectangle, whole, unit)
        if shown != part[begin:end]:
            raise ValueError(f"elements {begin} to {end} are drawn wrongly")
        held += shown
    return held


def check_pieces(drawing, mesh, policy, ep=None):
    """`ep`: neighbouring data ranks have other experts, so that ranks with the same are so far apart."""
    dp, tp, cp = mesh
    apart, parameters = (ep, EXPERTS) if ep else (1, PARAMETERS)
    held = {}
    for card in groups(drawing, "rank"):
        rank, at = int(card.get("data-rank")), tuple(int(card.get("data-" + axis)) for axis in ("dp", "tp", "cp"))
        if rank != (at[0] * tp + at[1]) * cp + at[2]:
            yield f"rank {rank} is drawn at dp, tp, cp = {at}"
        for lane in groups(card, "lane"):
            for tensor in groups(lane, "tensor"):
                name = tensor.get("data-parameter")
                try:
                    pieces = read_tensor(tensor, part_of(name, tp, at[1], apart, at[0] % apart))
                except ValueError as wrong:
                    yield f"rank {rank}, {name}: {wrong}"
                    continue
                for kind in lane.get("data-kinds").split(", "):
                    held[kind, name, at] = pieces
    if len(held) != len(KINDS) * len(parameters) * dp * tp * cp:
        yield f"{len(held)} pictures of a parameter on a rank"
        return
    for kind, shared_by in zip(KINDS, SHARED_BY[policy]):
        size = dp if shared_by in (0, ALL) else max(shared_by, apart)
        of_cp = cp if shared_by == ALL else 1
        for name in parameters:
            for at in ((d + e, t, c) for d in range(0, dp, size) for e in range(apart) for t in range(tp)
                       for c in range(0, cp, of_cp)):
                together = [cell for i in range(0, size, apart) for k in range(of_cp)
                            for cell in held[kind, name, (at[0] + i, at[1], at[2] + k)]]
                if sorted(together) != part_of(name, tp, at[1], apart, at[0] % apart):
                    yield f"{kind}, {name}: the {size * of_cp} ranks from dp, tp, cp = {at} do not hold the part once"


def check_names(program, folder):
    """Of 16 shards' cuts none crosses a parameter's name: what covers a cut is drawn after it, and right behind it."""
    drawing = xml.etree.ElementTree.fromstring(draw(program, folder, (16, 1, 1), "full_shard"))
    names = 0
    elements = [each for each in drawing if each.tag in (SVG + "line", SVG + "rect", SVG + "text")]
    cuts = [each for each in elements if each.tag == SVG + "line" and each.get("x1") == each.get("x2")]
    for before, element in zip(elements, elements[1:]):
        if element.text not in PARAMETERS or element.get("text-anchor") != "middle":
            continue
        names += 1
        left, top, width, height = (float(before.get(key, "nan")) for key in ("x", "y", "width", "height"))
        half, below = 3 * len(element.text), float(element.get("y"))
        middle = float(element.get("x"))
        if not (before.tag == SVG + "rect" and left <= middle - half and middle + half <= left + width
                and top <= below - 9 and below + 2 <= top + height):
            yield f"{element.text} lies on nothing"
        if any(cut in elements[elements.index(element):] for cut in cuts if left < float(cut.get("x1")) < left + width
               and float(cut.get("y1")) < below < float(cut.get("y2"))):
            yield f"{element.text} is crossed by a cut"
    if names < 3 or len(cuts) < 15:
        yield f"{names} names and {len(cuts)} cuts in the flat buffer"


def check_collectives(program, folder):
    drawing = xml.etree.ElementTree.fromstring(draw(program, folder, (2, 2, 2), "full_shard", 3))
    found = groups(drawing, "collective")
    if len(found) != len(COLLECTIVES):
        yield f"{len(found)} collectives are drawn, expected {len(COLLECTIVES)}"
    for element, (call, verb, axes, calls, ranks, moved) in zip(found, COLLECTIVES):
        shown = tuple(element.get("data-" + key) for key in ("call", "verb", "axes", "calls"))
        if shown != (call, verb, axes, str(calls)):
            yield f"drawn: {shown}, expected {(call, verb, axes, calls)}"
        joined = {group.get("data-ranks") for group in groups(element, "group")}
        if joined != ranks:
            yield f"{call}, {verb} over {axes}: drawn between {sorted(joined)}, expected {sorted(ranks)}"
        if moved is not None and element.get("data-moved") != str(moved):
            yield f"{call}, {verb}: {element.get('data-moved')} bytes, expected {moved}"


def check_refused(program, folder):
    for arguments, message in REFUSED:
        done = run(program, arguments, folder)
        if done.returncode != 2 or message not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
            yield f"{arguments}: exited with {done.returncode}, expected 2 and one line with \"{message}\":\n" \
                  f"{done.stdout}{done.stderr}"
        if pathlib.Path(folder, "a.svg").exists():
            yield f"{arguments}: a picture is left behind"
    helped = run(program, ["--help"], folder)
    if helped.returncode != 0 or "--policy NAME" not in helped.stdout:
        yield f"--help: exited with {helped.returncode}:\n{helped.stdout}{helped.stderr}"


# What the small pictures must say, by hand: 64 x 65 / 2 pairs over 4 ranks; 16 bytes of fp32 with AdamW, and of 32
# groups two leased ones under full_shard.
CONCEPTS = {
    "layout": ["shard 0: 0 to 96", "shard 1: 96 to 192", "shard 2: 192 to 288"],
    "hybrid_shard": [f"rank {rank}" for rank in range(16)],
    "memory": [f">{4 + 4 + 8}<", f">{4 + 4 + 8 / 8:g}<", f">{4 + 4 / 8 + 8 / 8 + 2 * 4 / 32:g}<",
               f">{16 / 8 + 2 * 4 / 32 + 2 * 4 / 32:g}<", f">{16 / 4 + 2 * 4 / 32 + 2 * 4 / 32:g}<"],
    "causal_chunks": [f"rank {rank}: {64 * 65 // 2 // 4} pairs" for rank in range(4)],
    "split_layers": ["up [8, 4]", "down [4, 8]"],
    # Of five gathers and three reductions of 1.5 s: the first gather less two updates of 0.5 s, the reduction whose buffer
    # the next gradients take, and the last one; 3 buffers of 64 x 64.
    "full_shard_step": [f"waits for {1.5 - 2 * 0.5 + 1.5 + 1.5:g} of {8 * 1.5:g} seconds", f"arena, {3 * 64 * 64 * 4 // 1024} KiB", "fwd, bwd 2", "bwd 0", ">gathers<",
                        ">reductions<"],
}


def check_concepts(program, pictures, folder):
    done = subprocess.run([program, folder], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        yield f"concepts: exited with {done.returncode}: {done.stderr}"
        return
    if {path.stem for path in pictures.glob("*.svg")} != set(CONCEPTS):
        yield f"{pictures}: has other pictures than {', '.join(CONCEPTS)}"
        return
    for name, texts in CONCEPTS.items():
        drawn = pathlib.Path(folder, name + ".svg").read_text(encoding="utf-8")
        xml.etree.ElementTree.fromstring(drawn)
        if drawn != (pictures / f"{name}.svg").read_text(encoding="utf-8"):
            yield f"concepts/{name}.svg: another picture is drawn now; draw it again: " \
                  "examples/mesh_picture/run concepts docs/pictures/concepts"
        for text in texts:
            if text not in drawn:
                yield f"concepts/{name}.svg does not say '{text}'"


def main():
    program, pictures = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    wrong = []
    with tempfile.TemporaryDirectory(prefix="shardkit-picture-") as folder:
        wrong += check_documentation(program, pictures, folder)
        for mesh in MESHES:
            for policy in SHARED_BY:
                if policy.endswith(":2") and mesh[0] % 2 != 0:
                    continue
                drawing = xml.etree.ElementTree.fromstring(draw(program, folder, mesh, policy))
                wrong += [f"mesh {mesh}, {policy}: {each}" for each in check_pieces(drawing, mesh, policy)]
        for mesh, ep in MESHES_OF_EXPERTS:
            for policy in SHARED_BY:
                if policy.endswith(":2") and 2 % ep != 0:
                    continue
                drawing = xml.etree.ElementTree.fromstring(draw(program, folder, mesh, policy, ep=ep))
                wrong += [f"mesh {mesh}, ep {ep}, {policy}: {each}" for each in check_pieces(drawing, mesh, policy, ep)]
        wrong += check_names(program, folder)
        wrong += check_collectives(program, folder)
        wrong += check_refused(program, folder)
        wrong += check_concepts(pathlib.Path(sys.argv[3]).resolve(), pictures / "concepts", folder)
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
