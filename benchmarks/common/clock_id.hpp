// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>

namespace benchmarks {

/// A number above 0 for the steady clock that this process reads: the same on one machine until it starts again,
/// another one on another machine. Where the system does not tell, every process has a clock of its own.
inline std::int64_t clock_id() {
    static const std::int64_t id = [] {
        constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        std::ifstream file("/proc/sys/kernel/random/boot_id");
        std::string boot;
        const std::uint64_t number = std::getline(file, boot)
                                         ? std::uint64_t{std::hash<std::string>{}(boot)}
                                         : std::uint64_t{std::random_device{}()} << 32U | std::random_device{}();
        return static_cast<std::int64_t>(number % largest + 1);
    }();
    return id;
}

}  // namespace benchmarks
