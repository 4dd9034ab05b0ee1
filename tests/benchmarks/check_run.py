# SPDX-License-Identifier: Apache-2.0
"""check_run.py ROOT: how many ranks benchmarks/run starts for its flags, and what its GPT says of a trainer's times."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from expectation import end, expect

SCRIPT = pathlib.Path(sys.argv[1]) / "benchmarks/ranks_asked_for.sh"
for flags, expected in (
        ([], "2"), (["--ranks", "3"], "3"), (["--ranks=4"], "4"), (["--ranks", "08"], "8"), (["--ranks", "4096"], "4096"),
        (["-g", "8"], "8"), (["--ngpus=1"], "1"),
        (["--mesh", "2x3x4"], "24"), (["--mesh=2x1x1,8x1x1"], "2"), (["--pin", "on", "--mesh", "2x010x1"], "20"),
        (["--from", "4", "--to=2"], "6"), (["--to", "3"], "5"), (["--from", "1"], "2"), (["--from", "0", "--to", "2"], ""),
        # The program itself says what is wrong with these.
        (["--ranks", "99999999999999999999"], ""), (["--ranks", "4097"], ""), (["--ranks", "0"], ""), (["--ranks", "-1"], ""),
        (["--ranks", "2a"], ""), (["--ranks", ""], ""), (["--ranks"], ""), (["--mesh", "2x"], ""), (["--mesh", "x2"], ""),
        (["--mesh", "64x64x2"], ""), (["--mesh", "2xx2"], ""), (["--mesh", "9999x9999x9999x9999x9999x9999"], "")):
    done = subprocess.run(["bash", "-euc", '. "$0"; ranks_asked_for 2 --engine mpi "$@"', SCRIPT, *flags],
                          capture_output=True, text=True, timeout=60, check=False)
    expect((done.returncode, done.stdout.strip(), done.stderr) == (0, expected, ""), f"{flags}: {expected!r}", done)

# Without a GPU there is nothing to time.
ROOT = pathlib.Path(sys.argv[1]).resolve()
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for tool, text in (("nvidia-smi", "exit 9"), ("nvcc", "echo built >&2; exit 9")):
        (folder / tool).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / tool).chmod(0o755)
    done = subprocess.run([ROOT / "benchmarks/run", "gpt"], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
    expect((done.returncode, done.stdout, done.stderr) ==
           (2, "", "benchmarks/run: error: nvidia-smi names no GPU on this machine: expected one for each rank\n"),
           "gpt without a GPU is refused", done)

    # A trainer that is as fast as it is told: each of two ranks makes 400,000 tokens a second, alone 500,000.
    trainer = folder / "train_gpt"
    trainer.write_text("""#!/bin/sh
echo "${*% --json *}" >>"$0.flags"
rate=500000.0
[ -z "$WORLD_SIZE" ] || rate=800000.0
[ "${RANK:-0}" = 0 ] || exit 0
for report; do :; done
echo "{\\"tokens_per_second\\": $rate, \\"peak_bytes_per_rank\\": 9216, \\"planned_bytes_per_rank\\": 9000,
       \\"collectives_by_axes\\": {}}" >"$report"
""", encoding="utf-8")
    trainer.chmod(0o755)
    asked = [sys.executable, "-B", ROOT / "benchmarks/gpt/main.py", "--program", trainer, "--chip", "NVIDIA H100 80GB HBM3"]
    done = subprocess.run([*asked, "--gpus", "2", "--policy", "no_shard", "--json", folder / "gpt.json"], capture_output=True, text=True, timeout=60, check=False)
    # 6 (12 x 12 x 768^2 + 50,257 x 768) + 12 x 12 x 768 x 1,024 operations a token, of 2 x 989.4e12 a second.
    share = 800_000 * (6 * 123_532_032 + 113_246_208) / (2 * 989.4e12)
    for graph in ("off", "on"):
        expect(f"graph {graph}: 800,000 tokens/s, {share:.1%} of the peak, 20.0% of a step is communication that is "
               "waited for\n  memory of a rank: 9,216 bytes at most, 9,000 planned\n" in done.stdout, f"graph {graph}", done)
    written = json.loads((folder / "gpt.json").read_text(encoding="utf-8"))
    expect([(row["graph"], row["tokens_per_second"], round(row["share_of_peak"] / share, 9),
             round(row["exposed_communication"], 9), row["peak_bytes"], row["planned_bytes"]) for row in written["rows"]] ==
           [(graph, 800_000, 1, 0.2, 9216, 9000) for graph in ("off", "on")], "--json has the same", str(written))
    expect("--batch-size=8 --seq-len=1024 --steps=30 --gpus=2\n" in done.stdout, "llmq's command", done)
    flags = (folder / "train_gpt.flags").read_text(encoding="utf-8").splitlines()
    expect(sorted(flags) == sorted(
        f"--engine nccl --model 124M --dtype bf16 --steps 30 --every 14 --graph {graph} --policy no_shard --text "
        f"{ROOT}/docs/architecture.md --batch {batch}"
        for graph in ("off", "on") for batch in ("16", "16", "8")), "what the trainer is asked for", str(flags))
    trainer.write_text("#!/bin/sh\necho 'no memory' >&2\nexit 3\n", encoding="utf-8")
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    expect(done.returncode == 1 and "ended with 3:" in done.stderr and "no memory" in done.stderr, "a trainer that fails", done)
    for wrong in (["--gpus", "3"], ["--gpus", "0"], ["--steps", "2"]):
        done = subprocess.run([*asked, *wrong], capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 2 and "expected at least a GPU and 3 steps" in done.stderr, f"{wrong}", done)
end()
