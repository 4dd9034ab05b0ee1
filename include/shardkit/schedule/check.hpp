// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/schedule/schedule.hpp>

namespace shardkit {

/// What every step keeps to; `check` says where a schedule does not.
enum class StepRule : std::uint8_t {
    group_exists,            ///< an operation is of one of the model's groups
    gather_before_use,       ///< a window shows a copy that was gathered since the last update
    gather_where_sharded,    ///< only a copy that can be out of date is gathered
    gather_outside_windows,  ///< a copy is not gathered again under an open window
    gather_is_used,          ///< a gathered copy is used before it is given back, gathered again or updated
    window_open_at_close,    ///< a window that ends was open
    windows_end_in_step,     ///< none is open at the group's update or at the end
    gradients_of_trainable,  ///< a frozen group has none
    gradients_of_step,       ///< a skipped group has none, nor one whose reduction is done
    zero_before_add,         ///< a microbatch is added once, from a buffer that was taken for it
    add_before_zero,         ///< one buffer of a group is out at a time
    microbatches_in_order,   ///< a group's microbatches are numbered 0, 1, ...
    add_before_reduce,       ///< a reduction comes behind what it reduces
    added_or_skipped,        ///< every trainable group is, before the norm and the updates
    reduced_before_read,     ///< all that was added is reduced, further too, before the norm and the updates
    norm_before_updates,     ///< a norm comes before the first update
    update_once              ///< a group is updated once at most, and every group that was added with any other
};
/// How many rules there are.
inline constexpr std::size_t step_rule_count = 17;

/// The rule's name, as errors give it.
constexpr std::string_view name(StepRule rule) noexcept {
    constexpr std::array<std::string_view, step_rule_count> names{
        "group_exists",      "gather_before_use",    "gather_where_sharded", "gather_outside_windows",
        "gather_is_used",    "window_open_at_close", "windows_end_in_step",  "gradients_of_trainable",
        "gradients_of_step", "zero_before_add",      "add_before_zero",      "microbatches_in_order",
        "add_before_reduce", "added_or_skipped",     "reduced_before_read",  "norm_before_updates",
        "update_once"};
    return names[static_cast<std::size_t>(rule)];
}
/// What it asks for, in a sentence.
constexpr std::string_view sentence(StepRule rule) noexcept {
    constexpr std::array<std::string_view, step_rule_count> sentences{
        "expected one of the model's groups",
        "expected a gather of the group between its last update or release and this use",
        "expected no gather: the group's full copy is always current",
        "expected the group's windows to be closed, or its copy to be out of date",
        "expected a use of the gathered copy before it is given back, gathered again or updated",
        "expected an open window of the group",
        "expected every window of the group to be closed by now",
        "expected no gradients of a group that is frozen",
        "expected no gradients of a group that was skipped or whose reduction is done",
        "expected a gradient buffer that was taken for this microbatch and not yet added",
        "expected the last gradient buffer of the group to be added first",
        "expected the group's next microbatch",
        "expected a microbatch that was added and is not yet reduced",
        "expected every trainable group to be added or skipped before",
        "expected everything that was added to be reduced before",
        "expected the norm before the first update",
        "expected one update of the group, and updates of all groups that were added or of none"};
    return sentences[static_cast<std::size_t>(rule)];
}

/// An operation that breaks a rule. What is missing at the end is told of an operation behind the last.
struct Violation {
    StepRule rule{};
    std::size_t operation = 0;
    std::uint32_t group = 0;

    friend constexpr bool operator==(const Violation&, const Violation&) noexcept = default;
};

namespace detail {

/// One pass over a step, from the state that the step before left.
class StepChecker {
  public:
    constexpr StepChecker(const Schedule& schedule, std::span<const GroupDescription> groups)
        : schedule_(schedule), rows_(rows_of(groups)), states_(filled(groups.size(), State{})) {
        for (std::size_t g = 0; g < groups.size(); ++g) { states_[g].current = rows_[g].rests_current(); }
    }

    constexpr std::vector<Violation> check() {
        pass();  // whatever rests current in steady state, rests so
        found_.clear();
        pass();
        return found_;
    }

  private:
    struct State {
        bool current = false;  // the full copy
        bool unused = false;   // gathered, and no window has shown it
        std::size_t windows = 0;
        bool out = false;  // a gradient buffer
        std::uint32_t added = 0;
        std::uint32_t unreduced = 0;
        bool skipped = false;
        bool reduced_further = false;
        bool done = false;  // reduced for good, and read
        bool updated = false;
    };

    constexpr void pass() {
        bool updates = false;
        for (State& its : states_) {
            const bool current = its.current;
            const bool unused = its.unused;
            its = {};
            its.current = current;
            its.unused = unused;
        }
        for (at_ = 0; at_ < schedule_.size(); ++at_) {
            const Op& op = schedule_[at_];
            if (op.act == Act::norm) {
                norm(updates);
            } else if (op.group >= states_.size()) {
                found_.push_back({StepRule::group_exists, at_, op.group});
            } else {
                updates = updates || op.act == Act::update;
                visit(op, rows_[op.group], states_[op.group]);
            }
        }
        end(updates);
    }

    constexpr void require(bool holds, StepRule rule, std::size_t group) {
        if (!holds) { found_.push_back({rule, at_, static_cast<std::uint32_t>(group)}); }
    }

    constexpr void visit(const Op& op, const GroupRows& rows, State& its) {
        const std::size_t g = op.group;
        switch (op.act) {
            case Act::gather:
                require(rows.gathers, StepRule::gather_where_sharded, g);
                require(its.windows == 0, StepRule::gather_outside_windows, g);
                require(!its.unused && (!its.current || rows.leases_full), StepRule::gather_is_used, g);
                its.current = true;
                its.unused = true;
                break;
            case Act::use:
                require(its.current, StepRule::gather_before_use, g);
                its.unused = false;
                ++its.windows;
                break;
            case Act::close:
                require(its.windows > 0, StepRule::window_open_at_close, g);
                if (its.windows > 0) { --its.windows; }
                break;
            case Act::zero:
                require(rows.trainable, StepRule::gradients_of_trainable, g);
                require(!its.skipped && !its.done, StepRule::gradients_of_step, g);
                require(!its.out, StepRule::add_before_zero, g);
                require(op.microbatch == its.added, StepRule::microbatches_in_order, g);
                its.out = true;
                break;
            case Act::add:
                require(its.out && op.microbatch == its.added, StepRule::zero_before_add, g);
                its.out = false;
                ++its.added;
                ++its.unreduced;
                break;
            case Act::skip:
                require(rows.trainable, StepRule::gradients_of_trainable, g);
                require(its.added == 0 && !its.out && !its.skipped, StepRule::gradients_of_step, g);
                its.skipped = true;
                break;
            case Act::reduce:
                require(its.unreduced > 0 && !its.out && op.microbatch + 1 == its.added, StepRule::add_before_reduce,
                        g);
                its.unreduced = 0;
                its.done = its.done || !rows.reduces_each;
                break;
            case Act::all_reduce:
                require(
                    rows.reduces_further && its.added > 0 && its.unreduced == 0 && !its.out && !its.reduced_further,
                    StepRule::add_before_reduce, g);
                its.reduced_further = true;
                its.done = true;
                break;
            case Act::update:
                update(g, rows, its);
                break;
            case Act::norm:
                break;
        }
    }
    constexpr void update(std::size_t g, const GroupRows& rows, State& its) {
        require(its.windows == 0, StepRule::windows_end_in_step, g);
        require(rows.trainable, StepRule::gradients_of_trainable, g);
        require(its.added > 0 && !its.skipped, StepRule::added_or_skipped, g);
        require_reduced(g, rows, its);
        require(!its.updated, StepRule::update_once, g);
        if (rows.gathers) {
            require(!its.unused, StepRule::gather_is_used, g);
            its.current = false;
            its.unused = false;
        }
        its.updated = true;
        its.done = true;
    }
    constexpr void require_reduced(std::size_t g, const GroupRows& rows, const State& its) {
        const bool reduced =
            its.unreduced == 0 && !its.out && (its.added == 0 || !rows.reduces_further || its.reduced_further);
        require(reduced, StepRule::reduced_before_read, g);
    }
    constexpr void norm(bool updates) {
        require(!updates, StepRule::norm_before_updates, 0);
        for (std::size_t g = 0; g < states_.size(); ++g) {
            if (!rows_[g].trainable) { continue; }
            require(states_[g].added > 0 || states_[g].skipped, StepRule::added_or_skipped, g);
            require_reduced(g, rows_[g], states_[g]);
            states_[g].done = true;
        }
    }
    constexpr void end(bool updates) {
        for (std::size_t g = 0; g < states_.size(); ++g) {
            State& its = states_[g];
            require(its.windows == 0, StepRule::windows_end_in_step, g);
            if (rows_[g].leases_full) {
                require(!its.unused, StepRule::gather_is_used, g);
                its.unused = false;
                its.current = false;
            }
            if (its.added > 0 || its.out) { require_reduced(g, rows_[g], its); }
            if (!updates || !rows_[g].trainable) { continue; }
            require(its.added > 0 || its.skipped, StepRule::added_or_skipped, g);
            require(its.updated || its.added == 0, StepRule::update_once, g);
        }
    }

    const Schedule& schedule_;
    std::vector<GroupRows> rows_;
    std::vector<State> states_;
    std::vector<Violation> found_;
    std::size_t at_ = 0;
};

}  // namespace detail

/// Every place where a schedule breaks a rule of a step, in its order; none where it can be followed. A step begins
/// as the one before it ends: what a step gathers behind its updates is current in the next.
///     static_assert(check(schedule(), groups).empty());
/// Cost:    operations times groups at most; works in constant expressions
constexpr std::vector<Violation> check(const Schedule& schedule, std::span<const GroupDescription> groups) {
    return detail::StepChecker(schedule, groups).check();
}

/// "operation 4 (add of 'blocks.0', microbatch 0) breaks zero_before_add: expected ..."
inline std::string describe(const Violation& violation, const Schedule& schedule,
                            std::span<const GroupDescription> groups) {
    const std::string group = violation.group < groups.size() ? detail::concat("'", groups[violation.group].path, "'")
                                                              : detail::concat("group ", violation.group);
    const std::string place = violation.operation < schedule.size()
                                  ? detail::concat("operation ", violation.operation, " (",
                                                   describe(schedule[violation.operation], groups), ")")
                                  : std::string("the end of the step");
    return detail::concat(place, " breaks ", name(violation.rule), " of ", group, ": ", sentence(violation.rule));
}

/// Refuses a schedule that breaks a rule.
/// @throws std::invalid_argument that names the first operation, the group and the rule
inline void require_valid(const Schedule& schedule, std::span<const GroupDescription> groups,
                          SourceLocation where = SourceLocation::current()) {
    const std::vector<Violation> found = check(schedule, groups);
    if (found.empty()) { return; }
    throw_invalid_argument(where, "schedule: ", describe(found.front(), schedule, groups),
                           found.size() > 1 ? detail::concat("; and ", found.size() - 1, " more") : "");
}

}  // namespace shardkit
