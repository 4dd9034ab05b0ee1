// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/machine/group_description.hpp>
#include <shardkit/policy/placement_table.hpp>

namespace shardkit::detail {

/// Returns the bytes of a row's elements on a rank.
constexpr std::size_t element_bytes_of(const BufferRow& row, const GroupDescription& group) noexcept {
    return row.count * group.numel_of(row.extent) * group.sizes.of(row.element);
}
/// Returns the bytes of a row's buffers on a rank, scales included.
constexpr std::size_t bytes_of(const BufferRow& row, const GroupDescription& group) noexcept {
    const bool has_scales =
        row.role == Role::parameters || (row.role == Role::gathered && group.sizes.codes.block > 0);
    return element_bytes_of(row, group) + (has_scales ? group.scale_bytes(row.extent) : 0);
}

/// A group's placement table, with the facts that all readers of a step need.
struct GroupRows : PlacementTable {
    bool trainable = false;
    bool gathers = false;            ///< windows may need a gather
    bool codes = false;              ///< the full copy is codes, which are made from masters behind an update
    bool coded_by_update = false;    ///< an update makes them whole, and does not only begin them
    bool leases_full = false;        ///< the full copy is leased
    bool keeps_shard = false;        ///< the rank's shard stays behind windows, and is stale behind an update
    bool reduces_twice = false;      ///< every microbatch is reduced over two sets of ranks
    bool reduces_each = false;       ///< every microbatch is reduced; until then its gradients lie in a leased buffer
    bool releases = false;           ///< all gradients lie in leased buffers, until the group's update
    bool sums_in_gradients = false;  ///< reduced sums lie in the leased gradient buffer, until the update
    std::uint32_t slices = 0;        ///< number that a rank adds along the tree in a step; 0: adds in turn
    bool reduces_further = false;    ///< sums across replicas or tp follow once all microbatches are added
    std::size_t full_bytes = 0;      ///< size of the leased full copy, 0 if there is none
    std::size_t gradient_bytes = 0;  ///< size of the leased gradient buffer, 0 if there is none
    std::size_t reduced_bytes = 0;   ///< size of the leased buffer of reduced sums, 0 if there is none
    std::size_t addend_bytes = 0;    ///< size of the leased target of later reductions, 0 if there is none

    constexpr GroupRows() = default;
    constexpr explicit GroupRows(const GroupDescription& group)
        : PlacementTable(placement_table(group.policy, group.sizes, group.trainable, group.microbatches_of_slices(1),
                                         group.sources())),
          trainable(group.trainable),
          slices(group.trainable ? static_cast<std::uint32_t>(group.microbatches_of_slices(0)) : 0) {
        // By the policy's own lease, before a release leases them all.
        const BufferRow* const gradients = find(Role::gradients);
        reduces_each = gradients != nullptr && gradients->held == Held::leased;
        releases = trainable && group.gradient_release == GradientRelease::at_update;
        if (releases) { lease_gradients(); }
        const auto leased = [&](Role role) {
            const BufferRow* const row = find(role);
            return row != nullptr && row->held == Held::leased ? bytes_of(*row, group) : 0;
        };
        full_bytes = leased(Role::gathered);
        gradient_bytes = leased(Role::gradients);
        reduced_bytes = leased(Role::reduced);
        addend_bytes = leased(Role::addend);
        sums_in_gradients = releases && find(Role::reduced) == nullptr;
        const auto at = [&](When when) {
            const auto found = collectives(when);
            return Rows{static_cast<std::size_t>(found.data() - collectives().data()), found.size()};
        };
        gather_ = at(collectives(When::each_window).empty() ? When::updated_window : When::each_window);
        codes = group.sizes.codes.gathered;
        coded_by_update = codes && group.sizes.codes.block > 0;
        keeps_shard = !collectives(When::stale_shard).empty();
        coded_ = at(keeps_shard ? When::stale_shard : When::coded_window);
        coded_.count += gather_.count;  // the rows behind
        further_ = at(When::last_microbatch);
        Rows whole{further_.begin, 0};  // the rows that reduce full gradients
        for (; further_.count > 0 && collectives()[further_.begin].extent == Extent::full; ++whole.count) {
            further_ = {further_.begin + 1, further_.count - 1};
        }
        first_ = reduces_each ? at(When::first_microbatch) : whole;
        later_ = reduces_each ? at(When::later_microbatch) : whole;
        reduces_twice = first_.count > 1 && reduces_each;
        leases_full = full_bytes > 0;
        gathers = codes || !called_by(Act::gather).empty();
        for (const CollectiveRow& row : called_by(Act::all_reduce)) {
            reduces_further = reduces_further || (row.extent == Extent::tp_sum ? group.tp > 1 && !group.tp_sum.empty()
                                                                               : group.replicas > 1);
        }
    }

    /// Returns the collectives that an act calls. `first` selects those of the first reduction, or of a gather that
    /// makes codes or finds the rank's shard stale, or those of a later one.
    constexpr std::span<const CollectiveRow> called_by(Act act, bool first = true) const noexcept {
        const Rows rows = act == Act::gather       ? (first ? coded_ : gather_)
                          : act == Act::all_reduce ? further_
                          : first                  ? first_
                                                   : later_;
        return collectives().subspan(rows.begin, rows.count);
    }
    /// Returns whether the full copy is current when a step begins, in steady state. It is stale where the update of
    /// a trainable group has changed the shards.
    constexpr bool rests_current() const noexcept { return !gathers || (!leases_full && !trainable); }
    /// Returns whether codes are made when a step begins, likewise, and whether they are begun.
    constexpr bool rests_coded() const noexcept { return coded_by_update; }
    constexpr bool rests_begun() const noexcept { return codes && !coded_by_update; }

  private:
    struct Rows {
        std::size_t begin = 0;
        std::size_t count = 0;
    };
    Rows gather_, coded_, first_, later_, further_;  // ranges of `collectives()`
};

/// Returns whether gathers of a group run over the same ranks as collectives over `over`; size_of(Over) is a number
/// of ranks.
template <class SizeOf>
constexpr bool gathers_over(Over over, const PlacementTable& rows, const SizeOf& size_of) {
    for (const CollectiveRow& row : rows.collectives()) {
        if (row.verb != Verb::all_gather) { continue; }
        if (row.over == over || (over == Over::data && size_of(row.over) == size_of(over))) { return true; }
    }
    return false;
}

/// Returns the size of an element in which sums of floating-point elements of `each` bytes are made.
constexpr std::size_t arithmetic_size(std::size_t each) noexcept { return std::max(each, sizeof(float)); }

/// Returns the bytes of a group's largest reduction in the memory in which an engine widens or collects addends; 0
/// where the reduction needs none.
constexpr std::size_t staged_bytes(const GroupDescription& group, const engine::Traits& engine) {
    if (!group.trainable || !engine.sums_travel_widened) { return 0; }
    const ElementSizes& sizes = group.sizes;
    const engine::Traits its =
        engine.of_sum(op_of(group.policy.summation), group.buffer_numel * sizes.gradient, sizes.gradient);
    if (its.adds_16_bits) {  // for the sums alone
        const std::size_t parts = group.policy.gradients == Placement::sharded ? group.shards : 1;
        return sizes.reduction == sizes.gradient ? 0 : group.buffer_numel / parts * sizes.gradient;
    }
    if (!its.sums_travel_widened) {
        constexpr std::size_t row_alignment = 16;  // elements by which a rank's row may be longer than its part
        return (group.buffer_numel + row_alignment * group.shards * group.replicas) * sizes.gradient;
    }
    const std::size_t arithmetic = arithmetic_size(sizes.reduction);
    const bool widens = sizes.gradient != sizes.reduction || sizes.reduction != arithmetic;
    return widens ? group.buffer_numel * arithmetic : 0;
}

SHARDKIT_CONSTEXPR_VECTOR std::vector<GroupRows> rows_of(std::span<const GroupDescription> groups) {
    std::vector<GroupRows> rows;
    for (const GroupDescription& group : groups) { rows.emplace_back(group); }
    return rows;
}

}  // namespace shardkit::detail
