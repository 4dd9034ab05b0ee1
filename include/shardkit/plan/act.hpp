// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardkit {

/// One operation of a step on a group; a norm is an operation on all groups.
enum class Act : std::uint8_t {
    gather,      ///< the gather of full parameters starts
    use,         ///< a window shows the full parameters
    close,       ///< a window ends
    zero,        ///< the backward pass gets a gradient buffer
    add,         ///< a microbatch's gradients are in the buffer
    skip,        ///< the group has no gradient in this step
    reduce,      ///< full gradients are reduced to this rank's part of the sum
    all_reduce,  ///< reduced gradients are summed across replicas and tp
    norm,        ///< the global norm of all groups' gradients
    update       ///< the optimizer's step
};

/// Returns the act's name as schedules print it.
constexpr std::string_view name(Act act) noexcept {
    constexpr std::array<std::string_view, 10> names{"gather", "use",    "close",      "zero", "add",
                                                     "skip",   "reduce", "all_reduce", "norm", "update"};
    return names[static_cast<std::size_t>(act)];
}
/// Returns whether the act is a verb of the program. The others are communication, which a schedule may move.
constexpr bool is_of_program(Act act) noexcept {
    return act != Act::gather && act != Act::reduce && act != Act::all_reduce;
}

}  // namespace shardkit
