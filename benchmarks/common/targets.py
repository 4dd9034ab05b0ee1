# SPDX-License-Identifier: Apache-2.0
"""The project's aims, and what results say about them: the one place where they stand. Rows of peers carry them."""
import dataclasses

from row import at_least, at_most

COLLECTIVES = "`benchmarks/run collectives`, ranks = processors"
PEERS = "`benchmarks/run peers`"
POLICIES = "`benchmarks/run policies`"
CHECKPOINTS = "`benchmarks/run checkpoints`, a state of 1.4 GB or more"
ON_GPU = "`benchmarks/run kernels --device gpu`, from 256 MiB on"
NO_GPU = "no GPU was there to measure on"
LIGHT = at_most(3)
UMBRELLA = at_most(1.6)


@dataclasses.dataclass(frozen=True)
class Target:
    """`bound`: {"least": value} or {"most": value}, as in the JSON of peers; `by`: what measures it, in words;
    `without`: why there may be no result."""
    id: str
    what: str
    bound: dict
    by: str
    without: str = "-"

    def rank(self, value):
        """Grows with how good a value is."""
        return value if "least" in self.bound else -value


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What a result says about a target. `target`: its id; `what`: the row that was measured."""
    target: str
    value: float
    what: str


@dataclasses.dataclass(frozen=True)
class ShareOfCopy(Target):
    """Of collectives' rows, from `least` to `most` bytes; `crowded`: with twice as many ranks as processors or more, out of
    place, else with as many."""
    engine: str = "threads"
    verbs: tuple = ()
    types: tuple = ("float",)
    least: int = 0
    most: int = 0
    crowded: bool = False

    def speaks_of(self, result, row):
        """The program rounds sizes down to whole pieces."""
        ranks, processors = result["group_size"], result["machine"]["processors"]
        slack = 4 * ranks
        return (result["engine"] == self.engine and result["groups"] == 1
                and (ranks >= 2 * processors if self.crowded else ranks == processors)
                and row["verb"] in self.verbs and row["type"] in self.types and row["redop"] in (None, "sum")
                and self.least - slack < row["size"] <= self.most)


def of_copy(verb, mib, share, engine="threads"):
    between = {"threads": "threads", "mpi": "processes of one host"}[engine]
    return ShareOfCopy(f"{engine}_{verb}_{mib}MiB_of_copy", f"{verb} between {between}, {mib} MiB: share of the copy",
                       at_least(share), COLLECTIVES, engine=engine, verbs=(verb,), least=mib << 20, most=mib << 20)


def of_openmpi(verb, times):
    return Target(f"{verb}_openmpi", f"{verb}, 8 and 64 MiB: times as fast as Open MPI", at_least(times),
                  f"{PEERS} collectives")


TARGETS = (
    of_copy("all_reduce", 64, 0.90),
    of_copy("reduce_scatter", 64, 0.90),
    of_copy("all_gather", 64, 0.85),
    of_copy("all_reduce", 1, 0.85),
    of_copy("reduce_scatter", 1, 0.85),
    of_copy("all_gather", 1, 0.85),
    of_copy("all_reduce", 64, 0.85, "mpi"),
    of_copy("reduce_scatter", 64, 0.85, "mpi"),
    of_copy("all_gather", 64, 0.85, "mpi"),
    of_copy("all_reduce", 1, 0.70, "mpi"),
    of_copy("reduce_scatter", 1, 0.70, "mpi"),
    of_copy("all_gather", 1, 0.70, "mpi"),
    ShareOfCopy("threads_16bit_of_copy", "reduce_scatter and all_reduce of bf16 and fp16 between threads, 64 KiB to 4 MiB: "
                "share of the copy", at_least(0.70), f"{COLLECTIVES}, -d bfloat16 and half",
                verbs=("reduce_scatter", "all_reduce"), types=("bfloat16", "half"), least=64 << 10, most=4 << 20),
    ShareOfCopy("threads_broadcast_of_copy", "broadcast between threads, 256 KiB to 64 MiB: share of the copy",
                at_least(0.85), COLLECTIVES, verbs=("broadcast",), types=("float", "bfloat16"), least=256 << 10,
                most=64 << 20),
    ShareOfCopy("crowded_threads_of_copy", "all_gather, reduce_scatter and all_reduce of twice as many threads as "
                "processors, 64 MiB, out of place: share of the copy", at_least(0.85),
                "`benchmarks/run collectives`, ranks = 2 x processors", verbs=("all_gather", "reduce_scatter", "all_reduce"),
                least=64 << 20, most=64 << 20, crowded=True),
    of_openmpi("all_reduce", 4),
    of_openmpi("reduce_scatter", 8),
    of_openmpi("all_gather", 1.5),
    Target("small_all_reduce_openmpi", "all_reduce, 256 bytes: times as fast as Open MPI", at_least(1),
           f"{PEERS} collectives"),
    Target("mpi_small_all_reduce_openmpi", "all_reduce between processes of one host, 256 bytes, calls compared: times as "
           "fast as Open MPI's own", at_least(1), f"{PEERS} collectives"),
    Target("more_ranks_than_processors", "barrier and all_reduce of 256 bytes, more ranks than processors: times as "
           "fast as `std::barrier`", at_least(1 / 1.5), f"{PEERS} collectives"),
    Target("verb_nanoseconds", "a `Sharded` verb over the engine's calls, nanoseconds", at_most(150),
           f"{PEERS} overhead"),
    Target("verb_instructions", "a `Sharded` verb over the engine's calls, instructions", at_most(2000),
           f"{PEERS} overhead"),
    Target("operation_nanoseconds", "a step that follows a schedule over the step without: nanoseconds an operation",
           at_most(1000), f"{PEERS} overhead"),
    Target("recorded_nanoseconds", "a call in the flight recorder, nanoseconds", at_most(30), f"{PEERS} overhead"),
    Target("adamw_by_hand", "AdamW on the host: times as fast as hand-written AVX2", at_least(0.97),
           f"{PEERS} adamw"),
    Target("adamw_pytorch", "AdamW on the host: times as fast as PyTorch's fused AdamW", at_least(1), f"{PEERS} adamw"),
    Target("gpu_adamw", "AdamW on a GPU: share of the device-to-device copy", at_least(0.90), ON_GPU, NO_GPU),
    Target("gpu_norm", "norm, unscaling and inf check on a GPU: share of the device-to-device copy", at_least(0.90),
           ON_GPU, NO_GPU),
    Target("gpu_pack", "packing and unpacking on a GPU: share of the device-to-device copy", at_least(0.85),
           ON_GPU, NO_GPU),
    Target("gpu_launches", "kernel launches for 300 tensors on a GPU", at_most(2), ON_GPU, NO_GPU),
    Target("products_pytorch", "matrix products of a step of the GPT example, one thread: times as fast as PyTorch's",
           at_least(0.9), f"{PEERS} products"),
    Target("training_fsdp2",
           "a training step of the GPT example, 2 ranks: times as fast as PyTorch's FSDP2 and DDP on gloo", at_least(1),
           f"{PEERS} training"),
    Target("training_products",
           "a training step of 19 M and 85 M parameters, 2 ranks: share of its matrix products, measured alone",
           at_least(0.85), f"{PEERS} training"),
    Target("peak_bytes", "peak bytes of a rank: distance from the plan, as a share of it", at_most(0.02), POLICIES),
    Target("simulated_step", "`simulate` of a step: distance from the measured one, as a share of that", at_most(0.15), POLICIES),
    Target("exposed_communication", "a step that follows a schedule, a processor to spare, communication shorter than "
           "computation: share of the communication that is waited for", at_most(0.05), f"{POLICIES} --work elsewhere "
           "--layers 64 --width 512 --vocabulary 0 --compute-us 3000 --schedule none,overlap:1 --overlap on"),
    Target("checkpoint_save", "a checkpoint's save, to the disk and into the page cache: speed over plain writes",
           at_least(0.9), CHECKPOINTS),
    Target("checkpoint_load", "a checkpoint's load, cold and warm: speed over plain reads", at_least(0.9), CHECKPOINTS),
    Target("checkpoint_stall", "begin_save: milliseconds until it returns", at_most(1), CHECKPOINTS),
    Target("checkpoint_digest", "digests of a checkpoint: by how much they lengthen plain writes into the page cache",
           at_most(0.03), CHECKPOINTS),
    Target("checkpoint_save_dcp", "a checkpoint's save, to the disk and into the page cache: times as fast as PyTorch DCP",
           at_least(3), f"{PEERS} checkpoints"),
    Target("checkpoint_load_dcp", "a checkpoint's load out of the page cache: times as fast as PyTorch DCP", at_least(3),
           f"{PEERS} checkpoints"),
    Target("includes_light", "headers of layout, policy and mesh: cost over <vector>, instructions of g++, time of "
           "clang++", LIGHT, f"{PEERS} includes, with valgrind"),
    Target("includes_umbrella", "`shardkit.hpp`: cost over its standard headers, likewise", UMBRELLA,
           f"{PEERS} includes, with valgrind"),
    Target("trainer_compile_time",
           "a trainer's file in the compiled form: instructions of g++ -O2 over those for one by hand", at_most(2.5),
           f"{PEERS} includes, with valgrind"),
    Target("includes_light_nvcc", "headers of layout, policy and mesh under nvcc: cost over <vector>", LIGHT,
           f"{PEERS} includes, with nvcc"),
    Target("includes_umbrella_nvcc", "`shardkit.hpp` under nvcc: cost over its standard headers", UMBRELLA,
           f"{PEERS} includes, with nvcc"),
)
BY_ID = {target.id: target for target in TARGETS}


def bound_of(name):
    """What a row that the target speaks of is held to."""
    return BY_ID[name].bound
