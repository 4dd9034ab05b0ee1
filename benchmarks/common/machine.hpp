// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/text_format.hpp"
#include "measure.hpp"

namespace benchmarks {

/// The GPU of that number.
/// @throws InputError that begins with `flag`, the one that asks for a GPU, when there is none with that number or
///         this program was built without CUDA. `wanted`: processes of this machine that need a GPU each
Gpu read_gpu(const std::string& flag, std::size_t number, std::size_t wanted);

/// What the system says of itself, with the flags of this program and the commit that benchmarks/run names.
Machine read_machine();

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
