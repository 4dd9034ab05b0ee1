// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/detail/not_copied.hpp>

namespace benchmarks {

/// Returns byte i of what a PlainCopy copies. Not zeros: on the first processor on which both were tried, zeros
/// written over zeros took half of the time of other bytes, which no collective has.
constexpr std::uint8_t copied_byte(std::size_t i) noexcept { return static_cast<std::uint8_t>(i * 167 + i / 4096); }

/// Is what one rank does to be timed, with its buffers, whatever it is and on whichever elements and engine.
class Workload : shardkit::detail::NotCopied {
  public:
    virtual ~Workload() = default;

    /// Puts in the values, and where results are expected what no result may keep.
    virtual void prepare() = 0;
    /// Gives the engine `times` calls back to back and waits for them.
    virtual void call(std::size_t times) = 0;
    /// How many values of this rank are not what one call after prepare() makes of them.
    virtual std::uint64_t count_wrong() = 0;
};

}  // namespace benchmarks
