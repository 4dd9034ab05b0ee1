# SPDX-License-Identifier: Apache-2.0
"""The page's part for a result of benchmarks/run kernels, and what it says about targets."""
from evidence import Evidence
from stacked_bars import stacked_bars
from text import figure, percent, rough_size, size_text, table

HEADS = ("kernel", "type", ">bytes per element", ">size of a rank", ">time (us)", ">bandwidth (GB/s)", ">copy (GB/s)",
         ">of copy (%)")
ON_GPU = {"adamw": "gpu_adamw", "norm": "gpu_norm", "pack": "gpu_pack", "unpack": "gpu_pack"}
# Smaller ones are over before a GPU's memory is busy.
LEAST_ON_GPU = 256 << 20
TENSORS = 300


def kernels_evidence(result):
    """The host's kernels have no target beside the copy."""
    if result["engine"] == "host":
        return
    for row in result["rows"]:
        what = f"{row['kernel']} {row['type']} {size_text(row['size'])}"
        if row["kernel"] in ON_GPU and row["size"] >= LEAST_ON_GPU:
            yield Evidence(ON_GPU[row["kernel"]], row["share_of_copy"], what)
        if row["tensors"] is not None and row["tensors"] >= TENSORS:
            yield Evidence("gpu_launches", row["launches"], what)


def kernels_section(result, _others):
    rows = [(row["kernel"], row["type"], row["bytes_per_element"], size_text(row["size"]),
             figure(row["time_us"]["median"]), figure(row["bandwidth_gb_s"]), figure(row["copy"]["bandwidth_gb_s"]),
             percent(row["share_of_copy"])) for row in result["rows"]]
    title = f"kernels on {result['engine']}, {result['ranks']} rank{'s' if result['ranks'] > 1 else ''}: " \
        "bandwidth over the copy's"
    bars = [(f"{row['kernel']} {row['type']}, {rough_size(row['size'])}", [[("kernel", row["share_of_copy"])]])
            for row in result["rows"]]
    yield None, table(HEADS, rows), [(f"{result.stem}_share_of_copy.svg", title,
                                                  stacked_bars(title, "the line is the copy", bars, 1.0))]
