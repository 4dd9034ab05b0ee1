# SPDX-License-Identifier: Apache-2.0
"""check.py PAGE TRAINER: the launch lines of PAGE, as they stand there, start TRAINER as one job.

Each block of shell lines runs in a folder where ./trainer is TRAINER (trainer.cpp, on a stand-in for CUDA and NCCL).
srun, scontrol and torchrun are stand-ins, which start as many processes and set what those set; mpirun is Open MPI's
and MPICH's own. Only numbers of processes, ports and names of hosts are others than on the page.
"""
import contextlib
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile

# What Slurm 23 gives a task: two nodes with two tasks each, all on this machine.
SRUN = """#!/bin/bash
while [[ $1 = --* ]]; do shift 2; done
for ((task = 0; task < 4; ++task)); do
    SLURM_PROCID=$task SLURM_NTASKS=4 SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$((task / 2)) SLURM_JOB_ID=17 "$@" &
done
wait
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames here[0-1]" ] && printf 'localhost\\nelsewhere\\n'
"""
# What torchrun of PyTorch 2.15 gives a worker; its own store listens at MASTER_PORT meanwhile. (With that torchrun
# itself both lines gave the places below on 2026-11-25, the second started twice.)
TORCHRUN = """#!/usr/bin/env python3
import os, socket, subprocess, sys
store = socket.create_server(("", 0))
nodes, local, rest = 1, 1, sys.argv[1:]
while rest[0].startswith("--"):
    if rest[0] == "--no-python":
        rest = rest[1:]
        continue
    nodes = int(rest[1]) if rest[0] == "--nnodes" else nodes
    local = int(rest[1]) if rest[0] == "--nproc-per-node" else local
    rest = rest[2:]
workers = [subprocess.Popen(rest, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank % local),
    "WORLD_SIZE": str(nodes * local), "LOCAL_WORLD_SIZE": str(local), "GROUP_RANK": str(rank // local),
    "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.getsockname()[1]), "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True"}) for rank in range(nodes * local)]
sys.exit(max(worker.wait() for worker in workers))
"""


def blocks_of(page):
    """The lines of each ```text block, those that a backslash continues joined as the shell reads them."""
    for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL):
        yield re.sub(r"^mpirun", "\0mpirun", block, flags=re.MULTILINE).split("\0")


def jobs_of(page):
    """(what to run, places that come of it): a job is a line and the export before it."""
    for pieces in blocks_of(page):
        text = "".join(pieces)
        if "torchrun" in text:
            for line in filter(None, text.splitlines()):
                nodes = 2 if "--nnodes" in line else 1
                yield re.sub(r"--nproc-per-node \d+", "--nproc-per-node 2", line), None, nodes * [0, 1]
        elif "srun" in text and "SLURM_PROCID" in text:
            yield text, None, [0, 1, 0, 1]
        elif "OMPI_COMM_WORLD_RANK" in text:
            export, *lines = pieces
            for line in lines:
                implementation = "openmpi" if "OMPI_" in line else "mpich"
                yield export + re.sub(r"-n \d+", "-n 3", line), implementation, [0, 1, 2]
        elif "for r in" in text:
            yield text, None, [0, 1, 2, 3]


def free_port():
    """One that nothing listens at, below those that the system gives to connections that are being made meanwhile."""
    for port in random.sample(range(20000, 30000), 100):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise OSError("no free port between 20000 and 30000")


def run(job, implementation, folder):
    environment = {name: value for name, value in os.environ.items()
                   if not re.match(r"NCCL_|SLURM_|OMPI_|PMI|SHARDKIT_TOKEN|TORCHELASTIC|.*RANK$|WORLD_SIZE|MASTER_", name)}
    environment.update(PATH=f"{folder}:{environment['PATH']}", SLURM_JOB_NODELIST="here[0-1]",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMPI_MCA_rmaps_base_oversubscribe="1")
    job = job.replace("29500", str(free_port())).replace("MASTER_ADDR=node0", "MASTER_ADDR=localhost")
    if implementation is not None:
        job = job.replace("mpirun", f"mpirun.{implementation}")
    return subprocess.run(["bash", "-c", job], cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
                          check=False)


def check(page, trainer):
    wrong, ran = [], []
    with tempfile.TemporaryDirectory(prefix="shardkit-launching-") as name:
        folder = pathlib.Path(name)
        (folder / "trainer").symlink_to(trainer)
        for command, text in ("srun", SRUN), ("scontrol", SCONTROL), ("torchrun", TORCHRUN):
            (folder / command).write_text(text, encoding="utf-8")
            (folder / command).chmod(0o755)
        for job, implementation, gpus in jobs_of(page):
            if implementation is not None and shutil.which(f"mpirun.{implementation}") is None:
                print(f"not run, there is no mpirun.{implementation}:\n{job}")
                continue
            done = run(job, implementation, folder)
            expected = [f"rank {rank} of {len(gpus)}, GPU {gpu}, id number 7, connected"
                        for rank, gpu in enumerate(gpus)]
            if sorted(done.stdout.splitlines()) != expected:
                wrong.append(f"{job}gives\n{done.stdout}{done.stderr}expected\n" + "\n".join(expected))
            ran.append(implementation or job.split()[0])
    print("ran:", ", ".join(ran))
    without_mpi = [each for each in ran if each not in ("openmpi", "mpich")]
    if len(without_mpi) != 4:
        wrong.append(f"{len(without_mpi)} jobs found on the page that need no MPI, expected torchrun's two, srun's, and "
                     "the one by hand")
    return wrong


if __name__ == "__main__":
    problems = check(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), pathlib.Path(sys.argv[2]).resolve())
    print(*problems, sep="\n")
    sys.exit(1 if problems else 0)
