# SPDX-License-Identifier: Apache-2.0
"""Builds and installs what a part needs, when it needs it, and says why where that is impossible."""
import functools
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

from refusal import Unavailable

PROGRAMS = ("peer_adamw", "peer_blas_products", "peer_checkpoints", "peer_muon", "peer_overhead", "peer_overhead_counted",
            "peer_reshard", "peer_threads_collectives", "peer_mpi_collectives_openmpi", "peer_mpi_collectives_mpich",
            "peer_overhead_mpi_openmpi", "peer_overhead_mpi_mpich")
PRODUCTS = "libpeer_products.so"


class Setup:
    """Where things are. With `programs`, a build folder, nothing is built or installed."""

    def __init__(self, root, programs=None, torch_python=None, train_gpt=None):
        self.root = root
        self.folder = root / "build/peers"
        self.given_programs = pathlib.Path(programs) if programs else None
        self.given_torch_python = torch_python
        self.given_train_gpt = pathlib.Path(train_gpt) if train_gpt else None

    @functools.cache
    def _prepare(self, *words):
        """Runs setup.sh; None, or why it failed. What was tried once is not tried again."""
        script = pathlib.Path(__file__).with_name("setup.sh")
        done = subprocess.run(["bash", str(script), *map(str, words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        log = (done.stdout + done.stderr).decode(errors="replace").strip()
        if done.returncode == 0:
            if log:
                print(log, file=sys.stderr, flush=True)
            return None
        return " | ".join(line for line in log.splitlines() if line.strip())[-500:] or "setup.sh failed"

    def need(self, what, *words):
        if self.given_programs:
            if what == "valgrind" and shutil.which("valgrind"):
                return
            raise Unavailable(f"{what} is not there, and --programs installs nothing")
        failed = self._prepare(what, *words)
        if failed:
            raise Unavailable(failed)

    def program(self, name):
        """@raise Unavailable when it cannot be built here"""
        folder = self.given_programs
        if folder is None:
            folder = self.folder / "programs"
            self.need("programs", folder, *PROGRAMS, PRODUCTS)
        path = folder / "benchmarks/peers" / name
        if not path.exists():
            raise Unavailable(f"{name} cannot be built: what it measures is not installed")
        return path

    @staticmethod
    def launcher(mpi):
        path = shutil.which(f"mpirun.{mpi}")
        if path is None:
            raise Unavailable(f"mpirun.{mpi} is not in PATH")
        return path

    def torch_python(self):
        """The interpreter that has PyTorch."""
        if self.given_torch_python:
            return self.given_torch_python
        self.need("torch", self.folder / "venv")
        return self.folder / "venv/bin/python"

    def train_gpt(self):
        if self.given_train_gpt:
            return self.given_train_gpt
        self.need("train_gpt", self.root / "build/examples")
        return self.root / "build/examples/examples/train_gpt/train_gpt"

    def products(self):
        """What is loaded into train_gpt to measure its matrix products; None where it cannot be built here."""
        try:
            return self.program(PRODUCTS)
        except Unavailable:
            return None

    @property
    def flags_of_train_gpt(self):
        """With which its loops were compiled."""
        try:
            with open(self.root / "build/examples/compile_commands.json", encoding="utf-8") as file:
                for entry in json.load(file):
                    if entry["file"].endswith("pass_instances.cpp"):
                        words = shlex.split(entry["command"])
                        return " ".join(word for word in words if word.startswith(("-O", "-f", "-m", "-std"))
                                        and not word.startswith("-fdiagnostics"))
        except OSError:
            pass
        return "unknown"
