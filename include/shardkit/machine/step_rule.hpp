// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardkit::schedule {

/// The rules that every step must keep. `check` reports where a schedule breaks one.
enum class StepRule : std::uint8_t {
    group_exists,            ///< an operation names one of the model's groups
    gather_before_use,       ///< a window shows a copy that was gathered since the last update
    gather_where_sharded,    ///< only a copy that can be stale is gathered
    gather_outside_windows,  ///< a copy is not gathered again under an open window
    gather_is_used,          ///< a gathered copy is used before it is released, gathered again or updated
    window_open_at_close,    ///< a window that ends was open
    windows_end_in_step,     ///< no window is open at the group's update or at the end of the step
    windows_before_update,   ///< no window opens behind the group's update
    gradients_of_trainable,  ///< a frozen group has none
    gradients_of_step,       ///< a group that was skipped or is completely reduced has none
    zero_before_add,         ///< a microbatch is added once, from a buffer that was handed out for it
    add_before_zero,         ///< at most one buffer of a group is handed out at a time
    microbatches_in_order,   ///< a group's microbatches are numbered 0, 1, ...
    add_before_reduce,       ///< a reduction comes after the microbatches that it reduces
    added_or_skipped,        ///< every trainable group is added or skipped before the norm and the updates
    reduced_before_read,     ///< everything added is completely reduced before the norm and the updates
    slices_one_by_one,       ///< each slice of a group is a microbatch and, if the policy does so, a reduction
    norm_before_updates,     ///< a norm comes before the first update
    update_once,             ///< a group is updated at most once, and all added groups are if any is
    batches_in_order,        ///< the acts on a batch of whole matrices come once each, in the order of `Act`
    batches_in_slots,        ///< at most three batches are under way: their buffers have three slots
    batches_before_updates   ///< every batch is applied before the first update, and none begins after it
};
/// The number of rules.
inline constexpr std::size_t step_rule_count = 22;

/// Returns the rule's name, as errors give it.
constexpr std::string_view name(StepRule rule) noexcept {
    constexpr std::array<std::string_view, step_rule_count> names{
        "group_exists",           "gather_before_use",     "gather_where_sharded", "gather_outside_windows",
        "gather_is_used",         "window_open_at_close",  "windows_end_in_step",  "windows_before_update",
        "gradients_of_trainable", "gradients_of_step",     "zero_before_add",      "add_before_zero",
        "microbatches_in_order",  "add_before_reduce",     "added_or_skipped",     "reduced_before_read",
        "slices_one_by_one",      "norm_before_updates",   "update_once",          "batches_in_order",
        "batches_in_slots",       "batches_before_updates"};
    return names[static_cast<std::size_t>(rule)];
}
/// Returns what the rule asks for, as a sentence.
constexpr std::string_view sentence(StepRule rule) noexcept {
    constexpr std::array<std::string_view, step_rule_count> sentences{
        "expected one of the model's groups",
        "expected a gather of the group between its last update or release and this use",
        "expected no gather: the group's full copy is always current",
        "expected the group's windows to be closed, or its copy to be out of date",
        "expected a use of the gathered copy before it is given back, gathered again or updated",
        "expected an open window of the group",
        "expected every window of the group to be closed by now",
        "expected no window of the group between its update and the end of the step",
        "expected no gradients of a group that is frozen",
        "expected no gradients of a group that was skipped or whose reduction is done",
        "expected a gradient buffer that was taken for this microbatch and not yet added",
        "expected the last gradient buffer of the group to be added first",
        "expected the group's next microbatch",
        "expected a microbatch that was added and is not yet reduced",
        "expected every trainable group to be added or skipped before",
        "expected everything that was added to be reduced before",
        "expected each of the group's slices once, reduced before the next where the policy reduces each",
        "expected the norm before the first update",
        "expected one update of the group, and updates of all groups that were added or of none",
        "expected the act that follows the batch's last one: direct, to_owners, transform, from_owners, apply",
        "expected a batch to be applied before a fourth one is under way",
        "expected every batch of matrices to be applied before the first update"};
    return sentences[static_cast<std::size_t>(rule)];
}

}  // namespace shardkit::schedule
