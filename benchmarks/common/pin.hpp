// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <cerrno>
#include <cstddef>
#include <system_error>

namespace benchmarks {

/// Binds the calling thread to the processor `number` of those in `allowed`, counted in their order and round again.
/// @throws std::system_error when the system refuses
inline void pin_to(const cpu_set_t& allowed, std::size_t number) {
    std::size_t left = number % static_cast<std::size_t>(CPU_COUNT(&allowed));
    std::size_t processor = 0;
    while (!CPU_ISSET(processor, &allowed) || left-- > 0) { ++processor; }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        throw std::system_error(errno, std::generic_category(), "--pin on: sched_setaffinity");
    }
}

/// The processors that the calling thread may use.
/// @throws std::system_error when the system does not say
inline cpu_set_t allowed_processors() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        throw std::system_error(errno, std::generic_category(), "--pin on: sched_getaffinity");
    }
    return allowed;
}

}  // namespace benchmarks
