// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <shardkit/machine/act.hpp>
#include <shardkit/machine/group_rows.hpp>
#include <shardkit/machine/step_rule.hpp>

// The rules of a step in one place: when it communicates, what it must not do, and which leased buffers exist. They
// follow from a group's rows and what the step has done so far. Groups, error checks, dry steps, plans, simulations
// and schedules all use them.

namespace shardkit::detail {
using schedule::StepRule;

/// The rules that an act breaks, in the order in which they are reported.
class BrokenRules {
  public:
    constexpr void require(bool holds, StepRule rule) {
        if (!holds) { rules_[count_++] = rule; }  // not at(): code that can throw is not optimized away
    }
    constexpr bool has(StepRule rule) const noexcept {
        for (std::size_t i = 0; i < count_; ++i) {
            if (rules_[i] == rule) { return true; }
        }
        return false;
    }
    constexpr bool empty() const noexcept { return count_ == 0; }
    constexpr const StepRule* begin() const noexcept { return rules_.data(); }
    constexpr const StepRule* end() const noexcept { return rules_.data() + count_; }

  private:
    std::array<StepRule, 8> rules_{};
    std::size_t count_ = 0;
};

/// The state of a step for one group.
struct GroupStep {
    // Of its full copy:
    bool current = false;       ///< the full copy agrees with the shards
    bool coded = false;         ///< what windows gather is current: codes of the masters as they are, a kept shard
    bool begun = false;         ///< an update has begun them, and they are not made yet
    bool unused = false;        ///< the full copy was gathered, and no window has shown it
    std::uint32_t asked = 0;    ///< windows that were opened and show nothing yet
    std::uint32_t windows = 0;  ///< windows that show the full copy
    // Of its gradients:
    bool out = false;              ///< the backward pass holds a gradient buffer
    bool lost = false;             ///< a gradient buffer of this step was never added
    bool skipped = false;          ///< the group has no gradient in this step
    bool finished = false;         ///< the program has declared that no microbatch follows
    bool reduced_further = false;  ///< the sums across replicas and tp are made
    bool done = false;             ///< the gradients are completely reduced, or were read
    bool updated = false;
    std::uint32_t added = 0;       ///< number of microbatches added
    std::uint32_t unreduced = 0;   ///< number of added microbatches not yet reduced
    std::uint32_t reductions = 0;  ///< number of reductions of full gradients

    /// Returns whether a gradient buffer may be handed out.
    constexpr bool accumulating() const noexcept { return !skipped && !finished && !done; }
};

/// The effect of an act.
struct Applied {
    GroupStep next;                          ///< the group's state after the act
    BrokenRules broken{};                    ///< the rules that forbid the act
    std::span<const CollectiveRow> calls{};  ///< the collectives that it calls; refers to the group's rows
    bool makes_codes = false;                ///< codes are made of the masters, before or between those calls
    bool begun = false;                      ///< an update has begun these codes
    std::optional<Role> works_in = {};       ///< the leased buffer that it needs
    bool takes = false;                      ///< that buffer exists from here on
    bool gives_back = false;                 ///< that buffer is not needed after the act
    bool takes_addend = false;               ///< a second buffer exists while the act runs
    bool takes_sums = false;                 ///< the leased buffer of reduced sums exists from here on
    bool works_in_sums = false;              ///< it is needed
    bool begins_sum = false;                 ///< the buffer is zeroed, or overwritten by the backward pass
    SliceCarry carry{};                      ///< how the act's sum joins those of earlier microbatches
};

/// Returns whether the group still has the buffer of an earlier microbatch.
constexpr bool keeps_gradients(const GroupStep& its, const GroupRows& rows) noexcept {
    return (rows.reduces_each ? its.unreduced : its.added) > 0;
}
/// Returns whether the next microbatch adds to values that earlier ones left in the buffer; otherwise it begins with
/// zeros.
constexpr bool adds_on(const GroupStep& its, const GroupRows& rows) noexcept {
    return rows.slices == 0 && keeps_gradients(its, rows);
}
/// Returns whether the group has as many microbatches as its slices make, if it has any.
constexpr bool has_all_slices(const GroupStep& its, const GroupRows& rows) noexcept {
    return rows.slices == 0 || its.added == 0 || its.added == rows.slices;
}
/// Returns whether everything that was added is completely reduced.
constexpr bool is_reduced(const GroupStep& its, const GroupRows& rows) noexcept {
    return its.unreduced == 0 && !its.out && (its.added == 0 || !rows.reduces_further || its.reduced_further);
}

/// Returns the effect of `act` of `microbatch` on a group. Inlined, so that a verb pays only for the parts that it
/// uses.
[[gnu::always_inline]] constexpr Applied apply_act(const GroupStep& its, Act act, const GroupRows& rows,
                                                   std::uint32_t microbatch) {
    Applied made{its};
    GroupStep& next = made.next;
    const auto require = [&](bool holds, StepRule rule) { made.broken.require(holds, rule); };
    const auto works_in = [&](bool leased, Role role) {
        if (leased) { made.works_in = role; }
    };
    switch (act) {
        case Act::gather:
            require(rows.gathers, StepRule::gather_where_sharded);
            require(its.windows == 0, StepRule::gather_outside_windows);
            require(!its.unused && (!its.current || rows.leases_full), StepRule::gather_is_used);
            works_in(rows.leases_full, Role::gathered);
            made.takes = rows.leases_full;
            made.makes_codes = rows.codes && !its.coded;
            made.begun = its.begun;
            made.calls = rows.called_by(act, !its.coded);
            next.current = next.unused = next.coded = true;
            next.begun = false;
            break;
        case Act::use:
            require(its.current, StepRule::gather_before_use);
            require(!its.updated, StepRule::windows_before_update);
            works_in(rows.leases_full, Role::gathered);
            next.unused = false;
            next.asked -= its.asked > 0 ? 1U : 0U;
            ++next.windows;
            break;
        case Act::close:
            require(its.windows > 0, StepRule::window_open_at_close);
            works_in(rows.leases_full, Role::gathered);
            if (its.windows > 0) {
                --next.windows;
            } else if (its.asked > 0) {
                --next.asked;
            }
            made.gives_back = rows.leases_full && next.windows + next.asked == 0;
            break;
        case Act::zero:
            require(rows.trainable, StepRule::gradients_of_trainable);
            require(its.accumulating(), StepRule::gradients_of_step);
            require(!its.out, StepRule::add_before_zero);
            require(microbatch == its.added, StepRule::microbatches_in_order);
            require(rows.slices == 0 || (its.added < rows.slices && (!rows.reduces_each || its.unreduced == 0)),
                    StepRule::slices_one_by_one);
            works_in(rows.gradient_bytes > 0, Role::gradients);
            made.takes = rows.gradient_bytes > 0 && !its.out && !keeps_gradients(its, rows);
            made.begins_sum = !adds_on(its, rows);
            next.out = true;
            break;
        case Act::add:
            require(its.out && microbatch == its.added, StepRule::zero_before_add);
            works_in(rows.gradient_bytes > 0, Role::gradients);
            if (rows.slices > 1 && !rows.reduces_each) { made.carry = slice_carry(its.added); }
            next.out = false;
            ++next.added;
            ++next.unreduced;
            break;
        case Act::skip:
            require(rows.trainable, StepRule::gradients_of_trainable);
            require(its.added == 0 && !its.out && !its.lost && !its.skipped && !its.finished,
                    StepRule::gradients_of_step);
            next.skipped = true;
            break;
        case Act::reduce:
            require(its.unreduced > 0 && !its.out && microbatch + 1 == its.added, StepRule::add_before_reduce);
            works_in(rows.gradient_bytes > 0, Role::gradients);
            made.gives_back = rows.gradient_bytes > 0 && !rows.sums_in_gradients;
            if (rows.reduces_each) {
                const std::size_t earlier = its.reductions > 0 ? 1 : 0;
                made.carry = rows.slices > 0 ? slice_carry(its.reductions) : SliceCarry{earlier, earlier};
            }
            made.takes_addend = rows.addend_bytes > 0 && (rows.reduces_twice || made.carry.merges > 0);
            made.works_in_sums = rows.reduced_bytes > 0;
            made.takes_sums = made.works_in_sums && its.reductions == 0;
            made.calls = rows.called_by(act, made.carry.merges == 0);
            next.unreduced = 0;
            ++next.reductions;
            next.done = its.done || !rows.reduces_each;
            break;
        case Act::all_reduce:
            require(rows.reduces_further && its.added > 0 && its.unreduced == 0 && !its.out && !its.reduced_further,
                    StepRule::add_before_reduce);
            require(has_all_slices(its, rows), StepRule::slices_one_by_one);
            made.calls = rows.called_by(act);
            made.works_in_sums = rows.reduced_bytes > 0;
            next.reduced_further = next.done = true;
            break;
        case Act::norm:
        case Act::direct:
            if (!rows.trainable) { break; }
            require(its.added > 0 || its.skipped, StepRule::added_or_skipped);
            require(is_reduced(its, rows), StepRule::reduced_before_read);
            require(has_all_slices(its, rows), StepRule::slices_one_by_one);
            next.done = true;
            break;
        case Act::update:
            require(its.windows + its.asked == 0, StepRule::windows_end_in_step);
            require(rows.trainable, StepRule::gradients_of_trainable);
            require(its.added > 0 && !its.skipped, StepRule::added_or_skipped);
            require(is_reduced(its, rows), StepRule::reduced_before_read);
            require(has_all_slices(its, rows), StepRule::slices_one_by_one);
            require(!its.updated, StepRule::update_once);
            require(!rows.gathers || !its.unused, StepRule::gather_is_used);
            if (rows.gathers) { next.current = next.unused = false; }
            next.coded = rows.rests_coded();
            next.begun = rows.rests_begun();
            works_in(rows.sums_in_gradients, Role::gradients);
            made.gives_back = rows.sums_in_gradients;
            made.works_in_sums = rows.reduced_bytes > 0;
            next.updated = next.done = true;
            break;
        default:
            break;  // the other acts on batches of matrices: BatchSteps has their rules
    }
    return made;
}

/// Returns the effect of an act on the group's next microbatch, or for a reduction on its last one. A program's verbs
/// mean this, as they have no numbers.
[[gnu::always_inline]] constexpr Applied apply_act(const GroupStep& its, Act act, const GroupRows& rows) {
    return apply_act(its, act, rows, act == Act::reduce ? its.added - 1 : its.added);
}

/// Returns the effect of declaring that all microbatches of a group were added.
constexpr Applied apply_finish(const GroupStep& its) {
    Applied made{its};
    made.broken.require(!its.skipped && !its.finished, StepRule::gradients_of_step);
    made.broken.require(!its.out && !its.lost, StepRule::reduced_before_read);
    made.broken.require(its.added > 0, StepRule::added_or_skipped);
    made.next.finished = true;
    return made;
}
/// Returns the next reduction that a program's verb makes where no schedule leads.
constexpr std::optional<Act> due_reduction(const GroupStep& its, const GroupRows& rows) noexcept {
    if (its.unreduced > 0 && (rows.reduces_each || its.finished)) { return Act::reduce; }
    if (its.finished && its.added > 0 && rows.reduces_further && !its.reduced_further) { return Act::all_reduce; }
    return std::nullopt;
}
/// Returns whether opening a window gathers where no schedule leads.
constexpr bool due_gather(const GroupStep& its, const GroupRows& rows) noexcept {
    return rows.gathers && !its.current;
}
/// Returns the state in which a step begins, in steady state.
constexpr GroupStep at_rest(const GroupRows& rows) noexcept {
    const bool coded = rows.rests_coded() || !rows.trainable;  // a kept shard that nothing updates stays current
    return {.current = rows.rests_current(), .coded = coded, .begun = rows.rests_begun()};
}
/// Returns the state after a write of masters or parameters that is no update.
constexpr GroupStep written(GroupStep its) noexcept {
    its.current = its.unused = its.coded = its.begun = false;
    return its;
}
/// Returns the state after an update that has begun the codes of those masters alone that it wrote.
constexpr GroupStep begun_in_part(GroupStep updated, const GroupStep& before) noexcept {
    updated.coded = updated.coded && before.coded;
    updated.begun = updated.begun && before.begun;
    return updated;
}
/// Returns the state after the release of a leased full copy.
constexpr GroupStep given_back(GroupStep its) noexcept {
    its.current = its.unused = false;
    return its;
}

/// Returns the effect of the end of a step. `updates` says whether the step updates any group. The full copy stays as
/// it is.
constexpr Applied apply_end(const GroupStep& its, const GroupRows& rows, bool updates) {
    Applied made;
    const auto require = [&](bool holds, StepRule rule) { made.broken.require(holds, rule); };
    require(its.windows == 0, StepRule::windows_end_in_step);
    require(!rows.leases_full || !its.unused, StepRule::gather_is_used);
    require((its.added == 0 && !its.out) || is_reduced(its, rows), StepRule::reduced_before_read);
    const bool reads = updates && rows.trainable;
    require(!reads || its.added > 0 || its.skipped, StepRule::added_or_skipped);
    require(!reads || its.updated || its.added == 0, StepRule::update_once);
    made.next.current = its.current && !rows.leases_full;
    made.next.unused = its.unused && !rows.leases_full;
    made.next.coded = its.coded;
    made.next.begun = its.begun;
    return made;
}

}  // namespace shardkit::detail
