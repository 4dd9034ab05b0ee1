// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/text_format.hpp"
#include "machine.hpp"

namespace benchmarks {

/// @throws InputError when the least that a run has to keep at once is more than this machine has; `smaller` names
/// the flags that make it less
inline void require_memory(double bytes, const std::string& smaller) {
    const std::uint64_t memory = memory_of_machine();
    if (bytes <= static_cast<double>(memory)) { return; }
    constexpr double most = 0x1p63;
    throw program::InputError("this run needs at least " +
                              program::bytes_text(static_cast<std::uint64_t>(bytes < most ? bytes : most)) +
                              " of memory at once, but this machine has " + program::bytes_text(memory) +
                              ": expected a smaller " + smaller);
}

}  // namespace benchmarks
