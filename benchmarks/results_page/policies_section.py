# SPDX-License-Identifier: Apache-2.0
"""The page's part for a result of benchmarks/run policies, and what it says about targets."""
from evidence import Evidence
from policies_pictures import memory_picture, predicted_picture, step_picture
from policy_label import policy_label
from text import cell, figure, mebibytes, percent, table

HEADS = ("mesh", "policy", ">peak (MiB)", ">planned (MiB)", ">calls", ">moved (MiB)", ">step (us)", ">p99 (us)",
         ">exposed (%)", ">compute (us)", ">communication (us)", ">predicted (us)", ">error (%)", ">differs")
PREDICTED_HEADS = ("mesh", ">nodes", "policy", ">memory (MiB)", ">calls", ">moved (MiB)", ">communication (us)",
                   ">compute (us)", ">step, full overlap (us)", ">step, no overlap (us)", ">exposed (%)")


def policies_evidence(result):
    for row in result["rows"]:
        yield Evidence("peak_bytes", abs(row["peak_bytes"] / row["planned_peak_bytes"] - 1),
                       f"{row['mesh']} {policy_label(row)}")


def measured_row(row):
    error = row["prediction_error"]
    return (row["mesh"], policy_label(row), mebibytes(row["peak_bytes"]), mebibytes(row["planned_peak_bytes"]),
            f"{row['calls']:.6g}", mebibytes(row["bytes"]), figure(row["step_us"]["median"]),
            figure(row["step_us"]["p99"]), percent(row["exposed"]), figure(row["compute_us"]["median"]),
            figure(row["communication_us"]["median"]), figure(row["predicted_communication_us"]),
            "-" if error is None else f"{100 * error:+.0f}", f"{row['difference']:.1e}")


def predicted_row(row):
    return (row["mesh"], row["nodes"], policy_label(row), mebibytes(row["memory_bytes"]), f"{row['calls']:.6g}",
            mebibytes(row["bytes"]), figure(row["communication_us"]), figure(row["compute_us"]),
            figure(row["step_full_overlap_us"]), figure(row["step_no_overlap_us"]),
            f"{percent(row['least_exposed'])}-{percent(row['most_exposed'])}")


COLLECTIVE_HEADS = ("mesh", "policy", "collective", ">calls", ">moved (B)", ">theory (B)", ">planned (B)")


def collective_rows(row):
    """What a step's collectives moved, beside the closed form and the plan."""
    return [(row["mesh"], policy_label(row), each["verb"], f"{each['calls']:.6g}",
             *(f"{each[member]:.0f}" for member in ("bytes", "theory_bytes", "planned_bytes")))
            for each in row["collectives"] if each["calls"]]


def link_text(link):
    limit = "no limit" if link["gb_s"] is None else f"{link['gb_s']:.6g} GB/s"
    return f"{link['latency_us']:.6g} us, {limit}"


def link_lines(links):
    """The values of the links, once where all verbs have the same."""
    texts = {}
    for each in links["verbs"]:
        text = link_text(each["within_node"])
        if each["across_nodes"] != each["within_node"]:
            text = f"within a node {text}; across nodes {link_text(each['across_nodes'])}"
        texts.setdefault(text, []).append(each["verb"])
    yield f"Links: {cell(links['source'])}: " + "; ".join(
        text if len(texts) == 1 else f"{' and '.join(verbs)} {text}" for text, verbs in texts.items()) + "."


def model_lines(result):
    model, links = result["model"], result["links"]
    lines = [f"Model: {cell(model['description'])}, {model['numel']} elements in {len(model['groups'])} groups, "
             f"{model['type']}."]
    if links is not None:
        lines += ["", *link_lines(links)]
    return [*lines, ""]


def policies_section(result, _others):
    pictures = [(f"{result.stem}_step.svg", *step_picture(result)),
                (f"{result.stem}_memory.svg", *memory_picture(result))] if result["rows"] else []
    lines = model_lines(result)
    if result["rows"]:
        lines += table(HEADS, [measured_row(row) for row in result["rows"]])
        if result["links"] is not None:
            lines += ["", "Where predictions are far off, and why: [method](benchmarks.md#method-of-the-policies).", ""]
    yield None, lines, pictures
    moved = [line for row in result["rows"] for line in collective_rows(row)]
    if moved:
        yield "bytes that a rank moves in a step's collectives, measured, by theory and planned", \
            table(COLLECTIVE_HEADS, moved), []
    if result["predicted"] is not None:
        rows = result["predicted"]["rows"]
        yield "predicted, not measured", [
            *[f"- {cell(text)}" for text in result["predicted"]["assumptions"]], "",
            *table(PREDICTED_HEADS, [predicted_row(row) for row in rows])], [
                (f"{result.stem}_predicted.svg", *predicted_picture(result))]
