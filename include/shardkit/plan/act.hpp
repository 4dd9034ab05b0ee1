// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardkit {

/// One thing that a step does with a group, or, norm, with all of them.
enum class Act : std::uint8_t {
    gather,      ///< full parameters start to come
    use,         ///< a window shows them
    close,       ///< a window ends
    zero,        ///< a gradient buffer goes to the backward pass
    add,         ///< a microbatch's gradients are in it
    skip,        ///< the group has no gradient in this step
    reduce,      ///< full gradients become this rank's part of the sum
    all_reduce,  ///< what is reduced is summed further, across replicas and tp
    norm,        ///< the global norm of all groups' gradients
    update       ///< the optimizer's step
};

/// The act as schedules print it.
constexpr std::string_view name(Act act) noexcept {
    constexpr std::array<std::string_view, 10> names{"gather", "use",    "close",      "zero", "add",
                                                     "skip",   "reduce", "all_reduce", "norm", "update"};
    return names[static_cast<std::size_t>(act)];
}
/// Whether the act is a verb of the program; the others are communication, which a schedule may move.
constexpr bool is_of_program(Act act) noexcept {
    return act != Act::gather && act != Act::reduce && act != Act::all_reduce;
}

}  // namespace shardkit
