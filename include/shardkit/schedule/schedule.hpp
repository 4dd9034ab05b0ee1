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
#include <shardkit/plan/act.hpp>
#include <shardkit/plan/group_description.hpp>
#include <shardkit/plan/model_step.hpp>

namespace shardkit {

/// What an operation waits in line with: operations of one lane follow each other, lanes run side by side.
enum class Lane : std::uint8_t { compute, gather, reduce };

/// The lane as schedules print it.
constexpr std::string_view name(Lane lane) noexcept {
    return lane == Lane::compute ? "compute" : lane == Lane::gather ? "gather" : "reduce";
}
/// Where an act runs unless a schedule says otherwise.
constexpr Lane lane_of(Act act) noexcept {
    switch (act) {
        case Act::gather:
            return Lane::gather;
        case Act::reduce:
        case Act::all_reduce:
            return Lane::reduce;
        default:
            return Lane::compute;
    }
}
/// One operation of a step.
struct Op {
    Act act{};
    std::uint32_t group = 0;       ///< by its place in the model; of a norm 0
    std::uint32_t microbatch = 0;  ///< whose it is; of a norm, an update and a skip 0
    Lane lane = lane_of(act);

    friend constexpr bool operator==(const Op&, const Op&) noexcept = default;
};

/// One training step of a model, from its Accumulation to the end of the optimizer's step, in steady state: the
/// operations of a rank in the order in which the host gives them to their lanes. It holds numbers only: which groups
/// they are of is said beside it, by the same descriptions from which plans are made. What an operation waits for in
/// other lanes follows from the order and is stored nowhere.
///     constexpr auto step = [] { return prefetch(layered_step(groups), groups, 1); };
///     static_assert(check(step(), groups).empty());
///     static_assert(peak(step(), groups) <= ByteCount(80'000'000'000));
class Schedule {
  public:
    SHARDKIT_CONSTEXPR_VECTOR Schedule() = default;
    SHARDKIT_CONSTEXPR_VECTOR explicit Schedule(std::vector<Op> ops) : ops_(static_cast<std::vector<Op>&&>(ops)) {}

    constexpr std::span<const Op> ops() const& noexcept { return {ops_.data(), ops_.size()}; }
    void ops() const&& = delete;  // of a schedule that ends before they are looked at
    constexpr std::size_t size() const noexcept { return ops_.size(); }
    SHARDKIT_CONSTEXPR_VECTOR const Op& operator[](std::size_t number) const noexcept { return ops_[number]; }

    SHARDKIT_CONSTEXPR_VECTOR void add(const Op& op) { ops_.push_back(op); }
    SHARDKIT_CONSTEXPR_VECTOR void insert(std::size_t before, const Op& op) {
        ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(before), op);
    }
    SHARDKIT_CONSTEXPR_VECTOR void erase(std::size_t number) {
        ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(number));
    }
    /// Takes operation `from` out and puts it in front of what is then operation `to`.
    SHARDKIT_CONSTEXPR_VECTOR void move(std::size_t from, std::size_t to) {
        const auto at = [&](std::size_t number) { return ops_.begin() + static_cast<std::ptrdiff_t>(number); };
        if (to < from) {
            std::rotate(at(to), at(from), at(from + 1));
        } else {
            std::rotate(at(from), at(from + 1), at(to + 1));
        }
    }
    SHARDKIT_CONSTEXPR_VECTOR void set_lane(std::size_t number, Lane lane) noexcept { ops_[number].lane = lane; }

    friend SHARDKIT_CONSTEXPR_VECTOR bool operator==(const Schedule&, const Schedule&) noexcept = default;

  private:
    std::vector<Op> ops_;
};

/// Equal for equal schedules: what ranks compare before they follow one. It is the same on every machine.
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

/// "gather of 'blocks.1', microbatch 0"; in another lane than its act's, ", lane compute" behind it.
inline std::string describe(const Op& op, std::span<const GroupDescription> groups) {
    std::string act(name(op.act));
    if (op.act == Act::norm) { return act; }
    std::string text = act + " of " +
                       (op.group < groups.size() ? detail::concat("'", groups[op.group].path, "'")
                                                 : detail::concat("group ", op.group));
    const bool once = op.act == Act::update || op.act == Act::skip || op.act == Act::all_reduce;
    if (!once) { text += detail::concat(", microbatch ", op.microbatch); }
    if (op.lane != lane_of(op.act)) { text += detail::concat(", lane ", name(op.lane)); }
    return text;
}

namespace detail {

/// `n` values, in constant expressions too: the vector's own constructor is none on clang 14 with libstdc++ 12.
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
/// That each group of a schedule is among those that are described.
/// @throws std::invalid_argument that names the first operation of another one
constexpr void require_described(const Schedule& schedule, std::span<const GroupDescription> groups,
                                 SourceLocation where) {
    for (std::size_t i = 0; i < schedule.size(); ++i) {
        const bool described = schedule[i].act == Act::norm || schedule[i].group < groups.size();
        if (!described) { throw_undescribed(schedule, i, groups, where); }
    }
}
/// Rows of all groups of a schedule.
/// @throws as require_described
SHARDKIT_CONSTEXPR_VECTOR std::vector<GroupRows> rows_of(const Schedule& schedule,
                                                         std::span<const GroupDescription> groups,
                                                         SourceLocation where) {
    require_described(schedule, groups, where);
    return rows_of(groups);
}

}  // namespace detail

}  // namespace shardkit
