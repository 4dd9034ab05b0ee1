// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "../../examples/common/text_format.hpp"
#include "machine.hpp"
#include "sweep.hpp"

namespace benchmarks {

/// Four significant digits, so that columns keep their width.
inline std::string four_digits(double value) {
    const int decimals = value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
    return program::formatted("%.*f", decimals, value);
}

/// "1 rank", "2 ranks"
inline std::string counted(std::size_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// The line that names the GPU; none on the host.
inline std::string gpu_head(const Machine& machine) {
    if (!machine.gpu) { return {}; }
    const Gpu& gpu = *machine.gpu;
    return "# GPU:     " + gpu.name + ", " + program::bytes_text(gpu.memory) + ", driver " + gpu.driver + ", CUDA " +
           gpu.cuda + ", NCCL " + gpu.nccl + "\n";
}

/// The lines of a table's head that say where it was measured.
inline std::string machine_head(const Machine& machine, bool pinned, std::size_t ranks) {
    return "# machine: " + machine.processor + ", " + counted(machine.processors, "processor") +
           " usable, last-level cache " + program::bytes_text(machine.last_cache) + ", " + machine.system +
           program::formatted(", load %.2f\n", machine.load) + gpu_head(machine) + "# build:   " + machine.compiler +
           ", " + machine.flags + "; shardkit " + machine.version + ", commit " + machine.commit +
           "\n# pinning: " + (pinned ? "rank r on the r-th processor" : "none") +
           (ranks > machine.processors ? "; ranks share processors\n" : "\n");
}

/// The line that says how.
inline std::string method_head(const Repeats& repeats) {
    return "# method:  warm-up " + counted(repeats.warmup, "call") + ", " + counted(repeats.rounds, "round") +
           " of " + (repeats.calls > 0 ? std::to_string(repeats.calls) : "up to 200") +
           " calls back to back, then as many copies; median of rounds, all ranks; " +
           counted(repeats.checks, "check") + "\n";
}

}  // namespace benchmarks
