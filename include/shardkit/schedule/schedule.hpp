// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/spi/placement.hpp>

namespace shardkit::schedule {

/// A queue of operations: those in one lane run one after the other, lanes run concurrently.
enum class Lane : std::uint8_t { compute, gather, reduce };

/// Returns the lane's name as schedules print it.
constexpr std::string_view name(Lane lane) noexcept {
    return lane == Lane::compute ? "compute" : lane == Lane::gather ? "gather" : "reduce";
}
/// Returns the lane in which an act runs unless a schedule chooses another.
constexpr Lane lane_of(Act act) noexcept {
    if (act == Act::gather || act == Act::to_owners || act == Act::from_owners) { return Lane::gather; }
    return act == Act::reduce || act == Act::all_reduce ? Lane::reduce : Lane::compute;
}
/// One operation of a step.
struct Op {
    Act act{};
    std::uint32_t group = 0;       ///< index in the model; 0 for a norm and acts on a batch of matrices
    std::uint32_t microbatch = 0;  ///< 0 for a norm, an update and a skip; the number of a batch of matrices
    Lane lane = lane_of(act);

    friend constexpr bool operator==(const Op&, const Op&) noexcept = default;
};

}  // namespace shardkit::schedule

namespace shardkit {

/// One training step of a model in steady state, from its Accumulation to the end of the optimizer's step: the
/// operations of a rank in the order in which the host gives them to their lanes. It holds numbers only; the groups
/// are described separately, by the descriptions that plans are made from. Waits between lanes follow from the order
/// and are not stored.
///     constexpr auto step = [] { return schedule::prefetch(schedule::layered_step(groups), groups, 1); };
///     static_assert(schedule::check(step(), groups).empty());
///     static_assert(schedule::peak(step(), groups) <= ByteCount(80'000'000'000));
class Schedule {
  public:
    SHARDKIT_CONSTEXPR_VECTOR Schedule() = default;
    SHARDKIT_CONSTEXPR_VECTOR explicit Schedule(std::vector<schedule::Op> ops)
        : ops_(static_cast<std::vector<schedule::Op>&&>(ops)) {}

    constexpr std::span<const schedule::Op> ops() const& noexcept { return {ops_.data(), ops_.size()}; }
    void ops() const&& = delete;  // would refer to a temporary
    constexpr std::size_t size() const noexcept { return ops_.size(); }
    SHARDKIT_CONSTEXPR_VECTOR const schedule::Op& operator[](std::size_t number) const noexcept {
        return ops_[number];
    }

    SHARDKIT_CONSTEXPR_VECTOR void add(const schedule::Op& op) { ops_.push_back(op); }
    SHARDKIT_CONSTEXPR_VECTOR void insert(std::size_t before, const schedule::Op& op) {
        ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(before), op);
    }
    SHARDKIT_CONSTEXPR_VECTOR void erase(std::size_t number) {
        ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(number));
    }
    /// Removes operation `from` and inserts it so that it becomes operation `to`.
    SHARDKIT_CONSTEXPR_VECTOR void move(std::size_t from, std::size_t to) {
        const auto at = [&](std::size_t number) { return ops_.begin() + static_cast<std::ptrdiff_t>(number); };
        if (to < from) {
            std::rotate(at(to), at(from), at(from + 1));
        } else {
            std::rotate(at(from), at(from + 1), at(to + 1));
        }
    }

    friend SHARDKIT_CONSTEXPR_VECTOR bool operator==(const Schedule&, const Schedule&) noexcept = default;

  private:
    std::vector<schedule::Op> ops_;
};

}  // namespace shardkit

namespace shardkit::schedule {

/// Returns a number that is equal for equal schedules and the same on every machine. Ranks compare it before they
/// follow one.
/// Source:  Fowler, Noll, Vo: FNV-1a, 64 bits
constexpr std::uint64_t hash(const Schedule& schedule) noexcept {
    detail::Fnv fnv;
    for (const Op& op : schedule.ops()) {
        fnv.add(static_cast<std::uint64_t>(op.act));
        fnv.add(op.group);
        fnv.add(op.microbatch);
        fnv.add(static_cast<std::uint64_t>(op.lane));
    }
    fnv.add(schedule.size());
    return fnv.hash;
}

/// Returns the operation as text: "gather of 'blocks.1', microbatch 0", followed by ", lane compute" if the lane is
/// not the act's usual one.
inline std::string describe(const Op& op, std::span<const planner::GroupDescription> groups) {
    std::string act(name(op.act));
    if (op.act == Act::norm) { return act; }
    const bool of_batch = is_of_batch(op.act);
    std::string text = act + " of " +
                       (of_batch                   ? detail::concat("batch ", op.microbatch)
                        : op.group < groups.size() ? detail::concat("'", groups[op.group].path, "'")
                                                   : detail::concat("group ", op.group));
    const bool once = of_batch || op.act == Act::update || op.act == Act::skip || op.act == Act::all_reduce;
    if (!once) { detail::append(text, ", microbatch ", op.microbatch); }
    if (op.lane != lane_of(op.act)) { detail::append(text, ", lane ", name(op.lane)); }
    return text;
}

}  // namespace shardkit::schedule

namespace shardkit::detail {

/// The state of a step of a model: one GroupStep for each group, and that of its batches of whole matrices.
class ModelStep {
  public:
    /// Begins a step in steady state.
    SHARDKIT_CONSTEXPR_VECTOR explicit ModelStep(std::span<const GroupDescription> groups) : rows_(rows_of(groups)) {
        for (const GroupRows& rows : rows_) { groups_.push_back(at_rest(rows)); }
    }

    constexpr std::size_t size() const noexcept { return rows_.size(); }
    SHARDKIT_CONSTEXPR_VECTOR const GroupRows& rows(std::size_t group) const noexcept { return rows_[group]; }
    SHARDKIT_CONSTEXPR_VECTOR GroupStep& operator[](std::size_t group) noexcept { return groups_[group]; }
    SHARDKIT_CONSTEXPR_VECTOR const GroupStep& operator[](std::size_t group) const noexcept { return groups_[group]; }

    SHARDKIT_CONSTEXPR_VECTOR Applied apply(Act act, std::size_t group, std::uint32_t microbatch) {
        const Applied made = apply_act(groups_[group], act, rows_[group], microbatch);
        groups_[group] = made.next;
        return made;
    }

    SHARDKIT_CONSTEXPR_VECTOR BatchSteps& batches() noexcept { return batches_; }

  private:
    std::vector<GroupRows> rows_;
    std::vector<GroupStep> groups_;
    BatchSteps batches_;
};

/// Returns `n` equal values, in constant expressions too: on clang 14 with libstdc++ 12 the vector's own constructor
/// is not constexpr.
template <class T>
constexpr std::vector<T> filled(std::size_t n, const T& value) {
    std::vector<T> made;
    made.reserve(n);
    for (std::size_t i = 0; i < n; ++i) { made.push_back(value); }
    return made;
}

[[noreturn]] inline void throw_undescribed(const Schedule& schedule, std::size_t at,
                                           std::span<const GroupDescription> groups, SourceLocation where) {
    throw_invalid_argument(where, "schedule: operation ", at, " (", describe(schedule[at], groups), "), but ",
                           groups.size(), " groups are described; expected descriptions of the model's groups, all");
}
/// Checks that every group of a schedule is described.
/// @throws std::invalid_argument that names the first operation of a group that is not
constexpr void require_described(const Schedule& schedule, std::span<const GroupDescription> groups,
                                 SourceLocation where) {
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const bool described = !schedule::is_of_group(schedule[i].act) || schedule[i].group < groups.size();
        if (!described) { throw_undescribed(schedule, i, groups, where); }
    }
}
/// Returns the rows of all groups of a schedule.
/// @throws as require_described
SHARDKIT_CONSTEXPR_VECTOR std::vector<GroupRows> rows_of(const Schedule& schedule,
                                                         std::span<const GroupDescription> groups,
                                                         SourceLocation where) {
    require_described(schedule, groups, where);
    return rows_of(groups);
}

}  // namespace shardkit::detail
