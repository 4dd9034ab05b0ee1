// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../../common/text_format.hpp"
#include "options.hpp"

namespace train_gpt {

/// Refuses a run that the limit of the address space (ulimit -v) is too small for. OpenBLAS (0.3.21) would ask for
/// its memory again and again, without end.
/// @throws std::runtime_error with what the ranks of this process take
inline void require_address_space(const Options& options, std::uint64_t planned_bytes_per_rank) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) { return; }
    constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
    // Of each thread that multiplies: OpenBLAS's buffer, malloc's arena, the stack.
    constexpr std::uint64_t thread = (128 + 64 + 8) * mebibyte;
    const std::uint64_t ranks = options.engine == EngineKind::mpi ? 1 : options.mesh.world();
    // Of this process: the threads that OpenBLAS made before main(), and those that say how far a run is.
    constexpr std::uint64_t process = 160 * mebibyte;
    const std::uint64_t needed = process + ranks * (thread + planned_bytes_per_rank);
    void* const memory = mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::runtime_error(
            "the limit of the address space (ulimit -v) leaves less than the " + program::bytes_text(needed) +
            " that this run takes: " + program::bytes_text(process) + " for the process, and for each of its ranks " +
            program::bytes_text(planned_bytes_per_rank) + " as planned and " + program::bytes_text(thread) +
            " for a thread that multiplies");
    }
    munmap(memory, needed);
}

}  // namespace train_gpt
