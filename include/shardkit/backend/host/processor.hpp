// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace shardkit::host::detail {

/// Returns the number of processors that this process may use, at least 1. It counts the affinity mask, as a
/// container or `taskset` often allows fewer processors than the machine has.
inline std::size_t allowed_cpus() noexcept {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        const int count = CPU_COUNT(&set);
        if (count > 0) { return static_cast<std::size_t>(count); }
    }
#endif
    const unsigned count = std::thread::hardware_concurrency();
    return count == 0 ? 1 : count;
}

/// Tells the processor that this is a spinning wait, so that it leaves resources to its sibling and exits the loop
/// without a pipeline flush.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("pause");
#elif defined(__aarch64__) || defined(__arm__)
    asm volatile("yield");
#endif
}

}  // namespace shardkit::host::detail
