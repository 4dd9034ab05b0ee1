// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardkit::schedule {

/// One operation of a step on a group; a norm is an operation on all groups, and the last five are operations on a
/// batch of whole matrices, whatever groups these are of.
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
    update,      ///< the optimizer's step
    // Of a batch of whole matrices, in an optimizer's step that has such (Muon), in this order:
    direct,       ///< the first pass over the batch's elements makes the directions of its matrices
    to_owners,    ///< the directions travel to the ranks that own the matrices
    transform,    ///< the owners transform their matrices
    from_owners,  ///< what became of them travels back, and to ranks that hold copies
    apply         ///< the second pass over the batch's elements
};

/// Returns the act's name as schedules print it.
constexpr std::string_view name(Act act) noexcept {
    constexpr std::array<std::string_view, 15> names{"gather", "use",       "close",      "zero",        "add",
                                                     "skip",   "reduce",    "all_reduce", "norm",        "update",
                                                     "direct", "to_owners", "transform",  "from_owners", "apply"};
    return names[static_cast<std::size_t>(act)];
}
/// Returns whether the act is one on a batch of whole matrices. An optimizer's step makes them, before its updates.
constexpr bool is_of_batch(Act act) noexcept { return act >= Act::direct; }
/// Returns whether the act is one on a single group.
constexpr bool is_of_group(Act act) noexcept { return act != Act::norm && !is_of_batch(act); }
/// Returns whether the act is a verb of the program, or a part of one. The others are communication, which a schedule
/// may move.
constexpr bool is_of_program(Act act) noexcept {
    return act != Act::gather && act != Act::reduce && act != Act::all_reduce;
}

}  // namespace shardkit::schedule

namespace shardkit::detail {
using schedule::Act;
}  // namespace shardkit::detail
