# SPDX-License-Identifier: Apache-2.0
"""The page's part for results of benchmarks/run kernels, and what they say about targets."""
from chart import Bar, bar_chart
from figures import rough_size, size_text
from targets import Evidence
from text import figure, percent, table

QUESTION = "How fast are the kernels of a step, beside a copy?"
ON_GPU = {"adamw": "gpu_adamw", "norm": "gpu_norm", "pack": "gpu_pack", "unpack": "gpu_pack"}
# Smaller ones are over before a GPU's memory is busy. A row's size is that of whole elements.
LEAST_ON_GPU = 256 << 20
TENSORS = 300


def evidence(result):
    """The host's kernels have no target beside the copy."""
    if result["engine"] == "host":
        return
    for row in result["rows"]:
        what = f"{row['kernel']} {row['type']} {size_text(row['size'])}"
        if row["kernel"] in ON_GPU and row["size"] > LEAST_ON_GPU - row["bytes_per_element"]:
            yield Evidence(ON_GPU[row["kernel"]], row["share_of_copy"], what)
        if row["tensors"] is not None and row["tensors"] >= TENSORS:
            yield Evidence("gpu_launches", row["launches"], what)


def on(result):
    return f"{result['engine']}, {result['ranks']} rank{'s' if result['ranks'] > 1 else ''}"


def kernel_rows(result, columns):
    """A row for each kernel and type."""
    found = {}
    for row in result["rows"]:
        key = (row["kernel"], row["type"], row["bytes_per_element"])
        found.setdefault(key, {})[rough_size(row["size"])] = (
            f"{figure(row['time_us']['median'])} us, {figure(row['bandwidth_gb_s'])} GB/s, "
            f"{percent(row['share_of_copy'])} %")
    return [(*key, *(by_size.get(name, "-") for name in columns)) for key, by_size in found.items()]


def section(results, _everything):
    lines = ["Time of a call, bandwidth of all ranks, and its share of the copy's, by the bytes that a rank reads and "
             "writes.", ""]
    for result in results:
        columns = list(dict.fromkeys(rough_size(row["size"]) for row in result["rows"]))
        lines += [f"### {result.name}: {on(result)}", "", *table(
            ("kernel", "type", ">bytes per element", *(f">{name}" for name in columns)), kernel_rows(result, columns))]
    first = results[0]
    groups = {}
    for row in first["rows"]:
        bar = Bar(((rough_size(row["size"]), row["share_of_copy"]),))
        groups.setdefault(f"{row['kernel']} {row['type']}", []).append(bar)
    title = f"kernels on {on(first)}: bandwidth over the copy's"
    drawing = bar_chart(title, "the line is the copy", list(groups.items()), limit=1.0)
    return lines, [("kernels_share_of_copy", title, drawing)]
