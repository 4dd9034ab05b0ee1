# SPDX-License-Identifier: Apache-2.0
"""check_machine_code.py NVDISASM LIST CUBIN

Fails when the machine code of a kernel is not what LIST says, and when CUBIN has a kernel of the library that LIST has
not. A line of LIST, between "|":
    functor | registers | loads of a thread: number x bytes | stores likewise | vectors | instructions | searches | frame
    functor | registers | rows: number x bytes | frame
    functor | why its machine code is not looked at
Both may begin with an architecture, "sm_90 ", and are then of its code alone.
The way through the kernel that is looked at is the shortest on which a thread makes these loads and stores of these
widths, all loads before the first store: that on which vectors are whole. `instructions` is for each of the
`vectors` that are so taken, the difference between going that way twice and once. `searches`: loops that read 8 bytes,
and nothing else, in each turn, at most that many. Registers likewise at most. Nowhere in a kernel are there accesses to
local memory, so nothing is spilled, nor generic ones, which the hardware first has to place. Only with a last field, which
may be left out, up to that many bytes are spilled, and none of them between the first load and the last store of the way.
A kernel of the second form loops over the elements of a row or a column: one of its innermost loops makes at least as many
loads of so many bytes in each turn, so it is unrolled and reads elements whole. None of its instructions is of double
precision, which takes a GPU many times as long. Its last field, which may be left out, is likewise what is spilled.
"""
import collections
import heapq
import pathlib
import re
import subprocess
import sys

ACCESS_BYTES = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}
EXIT = -1
Limits = collections.namedtuple("Limits", "functor registers loads stores vectors instructions searches frame",
                                defaults=(0,))
Rows = collections.namedtuple("Rows", "functor registers loads frame", defaults=(0,))


def limits_of(line):
    """Of a line that limits something; otherwise only the functor."""
    if line.count("|") == 1:
        return line.split("|")[0].strip()
    fields = [field.strip() for field in line.split("|")]
    if fields[2].startswith("rows: "):
        loads = tuple(int(n) for n in fields[2][len("rows: "):].split("x"))
        return Rows(fields[0], int(fields[1]), loads, *(int(n) for n in fields[3:]))
    functor, registers, loads, stores, *rest = fields
    loads, stores = (tuple(int(n) for n in field.split("x")) for field in (loads, stores))
    return Limits(functor, int(registers), loads, stores, *(int(n) for n in rest))


def disassembled(nvdisasm, cubin):
    """({kernel: its labels and instructions}, {kernel: registers}, {kernel: bytes of its stack frame}, "sm_90")"""
    text = subprocess.run([nvdisasm, cubin], capture_output=True, text=True, check=True).stdout
    kernels, numbers = {}, {"REGCOUNT": {}, "FRAME_SIZE": {}}
    items = attribute = name = None
    for line in text.splitlines():
        if match := re.match(r"\.text\.(\S+):", line):
            items = kernels.setdefault(match[1], [])
        elif line.startswith("\t.section"):
            items = None
        elif match := re.search(r"EIATTR_(\w+)", line):
            attribute = match[1]
        elif attribute in numbers and (match := re.search(r"index@\((\S+)\)", line)):
            name = match[1]
        elif attribute in numbers and name and (match := re.search(r"\.word\s+(0x[0-9a-f]+)", line)):
            numbers[attribute][name] = int(match[1], 16)
            attribute = name = None
        elif items is not None and (match := re.match(r"(\.L_x_\d+):|\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)):
            items.append((match[1], match[2]))
    return kernels, numbers["REGCOUNT"], numbers["FRAME_SIZE"], re.search(r"\.target\s+(sm_\d+)", text)[1]


def operation(instruction):
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0]


def access(instruction):
    """("LDG" or "STG", bytes), or None."""
    name = operation(instruction)
    if not name.startswith(("LDG.", "STG.")):
        return None
    return name[:3], next((size for part, size in ACCESS_BYTES.items() if part in name), 4)


class Code:
    """Basic blocks of a kernel and what follows each."""

    def __init__(self, items):
        self.blocks, labels, block = [], {}, []
        for label, instruction in items:
            if label:
                if block:
                    self.blocks.append(block)
                    block = []
                labels[label] = len(self.blocks)
                continue
            block.append(instruction)
            if operation(instruction).split(".")[0] in ("BRA", "EXIT", "RET", "BRX"):
                self.blocks.append(block)
                block = []
        if block:
            self.blocks.append(block)
        self.after = [self.followers(n, block[-1], labels) for n, block in enumerate(self.blocks)]

    def followers(self, number, last, labels):
        name = operation(last).split(".")[0]
        falls = name not in ("BRA", "EXIT", "RET", "BRX") or last.startswith("@") or \
            re.search(r"BRA\S*\s+!?U?P\d|\.(DIV|CONV)\b", last)
        found = [number + 1] if falls and number + 1 < len(self.blocks) else []
        if name == "EXIT":
            found.append(EXIT)
        target = re.search(r"`\((\.L_x_\d+)\)", last)
        if name == "BRA" and target and target[1] in labels:
            found.append(labels[target[1]])
        return found

    def accesses(self, block):
        return [found for found in map(access, self.blocks[block]) if found]

    def shortest(self, loads, stores, times):
        """(instructions, blocks) of the shortest way with `times` the loads and stores; None without one."""
        wanted = (times * loads[0], times * stores[0])
        made = [(self.accesses(n).count(("LDG", loads[1])), self.accesses(n).count(("STG", stores[1])))
                for n in range(len(self.blocks))]
        queue, came_from = [(0, (0, 0, 0), None)], {}
        while queue:
            cost, state, before = heapq.heappop(queue)
            if state in came_from:
                continue
            came_from[state] = before
            block, loaded, stored = state
            if block == EXIT:
                if (loaded, stored) == wanted:
                    way = []
                    while before is not None:
                        way.append(before[0])
                        before = came_from[before]
                    return cost, way[::-1]
                continue
            done = (min(wanted[0], loaded + made[block][0]), min(wanted[1], stored + made[block][1]))
            if done[1] > 0 and done[0] < loads[0]:  # several turns of less
                continue
            for following in self.after[block]:
                heapq.heappush(queue, (cost + len(self.blocks[block]), (following, *done), state))
        return None

    def loops(self):
        """The blocks of each loop."""
        before = collections.defaultdict(list)
        for block, following in enumerate(self.after):
            for each in following:
                before[each].append(block)
        for last, following in enumerate(self.after):
            for first in (each for each in following if EXIT < each <= last):
                body, left = {first}, [last]
                while left:
                    block = left.pop()
                    if block not in body and first <= block <= last:
                        body.add(block)
                        left.extend(before[block])
                yield body

    def searches(self):
        return sum(1 for body in self.loops() if [x for n in body for x in self.accesses(n)] == [("LDG", 8)])


def wrong_anywhere(code, registers, frame, limits):
    instructions = [each for block in code.blocks for each in block]
    for kind, pattern in (("local", r"(LDL|STL)\b"), ("generic", r"(LD|ST|ATOM)\b")):
        found = [each for each in instructions if re.match(pattern, operation(each))]
        if found and (kind == "generic" or not 0 < frame <= limits.frame):
            yield f"{len(found)} {kind} accesses, the first: {found[0]}"
    if frame > limits.frame:
        yield f"a stack frame of {frame} bytes"
    if registers > limits.registers:
        yield f"{registers} registers, at most {limits.registers}"


def wrong_in_rows(code, registers, limits):
    doubles = [each for block in code.blocks for each in block
               if re.match(r"D(ADD|MUL|FMA|SETP|MNMX|SET)\b|MUFU\..*64H|\w+\..*F64", operation(each))]
    if doubles:
        yield f"{len(doubles)} instructions of double precision, the first: {doubles[0]}"
    bodies = list(code.loops())
    most = max((sum(code.accesses(n).count(("LDG", limits.loads[1])) for n in body) for body in bodies
                if not any(other < body for other in bodies)), default=0)
    print(f"{limits.functor}: {most} loads of {limits.loads[1]} bytes in a turn, {registers} registers")
    if most < limits.loads[0]:
        yield f"no loop with {limits.loads[0]} loads of {limits.loads[1]} bytes in a turn, at most {most}"


def wrong_in(code, registers, limits):
    searches = code.searches()
    if searches > limits.searches:
        yield f"{searches} searches, at most {limits.searches}"
    once, twice = (code.shortest(limits.loads, limits.stores, times) for times in (1, 2))
    if once is None or twice is None:
        yield (f"no way with {limits.loads[0]} loads of {limits.loads[1]} bytes before the first of "
               f"{limits.stores[0]} stores of {limits.stores[1]}, {'once' if once is None else 'twice'}")
        return
    on_way = [operation(each) for block in once[1] for each in code.blocks[block]]
    moves = [i for i, each in enumerate(on_way) if each.startswith(("LDG", "STG")) and ".128" in each]
    local = [each for each in on_way[moves[0]:moves[-1]] if each.startswith(("LDL", "STL"))] if moves else []
    if local:
        yield f"{len(local)} local accesses between the first load and the last store, the first: {local[0]}"
    per_vector = (twice[0] - once[0]) / limits.vectors
    print(f"{limits.functor}: {per_vector:.1f} instructions per vector, {registers} registers, {searches} searches")
    if per_vector > limits.instructions:
        yield f"{per_vector:.1f} instructions per vector, at most {limits.instructions}"


def main():
    nvdisasm, list_path, cubin = sys.argv[1:]
    kernels, registers, frames, architecture = disassembled(nvdisasm, cubin)
    names = list(kernels)
    demangled = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    by_name = dict(zip(demangled.splitlines(), names))
    wrong, unlisted = [], {text for text in by_name if "shardkit::" in text}
    for line in pathlib.Path(list_path).read_text(encoding="utf-8").splitlines():
        if alone := re.match(r"(sm_\d+) ", line):
            if alone[1] != architecture:
                continue
            line = line[alone.end():]
        limits = limits_of(line)
        functor = limits if isinstance(limits, str) else limits.functor
        place = ("" if functor.startswith("train_gpt::") else
                 "shardkit::" if functor.startswith("detail::") else "shardkit::gpu::detail::")
        of_functor = [text for text in by_name if re.search(r"[ (]" + re.escape(place + functor), text)]
        unlisted.difference_update(of_functor)
        if isinstance(limits, str):
            if not of_functor:
                wrong.append(f"{functor}: no kernel, expected one or more")
            continue
        if len(of_functor) != 1:
            wrong.append(f"{functor}: {len(of_functor)} kernels, expected 1")
            continue
        name = by_name[of_functor[0]]
        code, count = Code(kernels[name]), registers[name]
        found = (wrong_in_rows if isinstance(limits, Rows) else wrong_in)(code, count, limits)
        wrong.extend(f"{functor}: {each}" for each in [*wrong_anywhere(code, count, frames.get(name, 0), limits), *found])
    wrong.extend(f"not in the list: {text}" for text in sorted(unlisted))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
