// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <shardkit/comm/verb.hpp>
#include <shardkit/policy/element_sizes.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/policy/slice_order.hpp>

namespace shardkit::detail {

/// What a buffer of a group is for.
enum class Role : std::uint8_t {
    parameters,  ///< resting parameters: an update writes, a gather sends and a checkpoint reads them
    gathered,    ///< full copy of sharded parameters
    secondary,   ///< the rank's shard of parameters that are sharded across groups too
    master,      ///< master weights, where their type differs from the gathered one
    states,      ///< one optimizer state
    gradients,   ///< full gradients that a backward pass adds to
    reduced,     ///< sums over ranks, where they are not stored in `gradients`
    addend,      ///< the reduction of a later microbatch, before it is added to `reduced`
    subtotals    ///< sums of slices that wait for others; see slice_order.hpp
};
/// Which elements of the group's flat order a buffer holds.
enum class Extent : std::uint8_t {
    full,
    shard,   ///< this rank's shard within its group
    piece,   ///< this rank's piece of that shard, which is cut across groups
    tp_sum,  ///< the reduced gradients that are summed over tp
    scales   ///< of gathered codes, in bytes: see planner::GroupDescription::scale_bytes
};
/// Whether a group owns a buffer permanently or leases one.
enum class Held : std::uint8_t {
    always,
    leased  ///< from a pool that groups share
};
/// When in a step a collective runs.
enum class When : std::uint8_t {
    coded_window,      ///< in the first window after an update, while codes are made from masters
    stale_shard,       ///< in the first window after an update or another write, before the shard is gathered
    each_window,       ///< in the first of the windows that are open at a time
    updated_window,    ///< in the first window after an update
    first_microbatch,  ///< at the end of the first microbatch; with slices, of every second one
    later_microbatch,  ///< at the end of each other microbatch, whose sum is added to earlier ones
    last_microbatch    ///< when all microbatches are added, in the order of the rows
};

/// Which ranks join a collective; a GroupMesh has their axes.
enum class Over : std::uint8_t { shards, replicas, data, tp };
/// Every set of ranks, in order.
inline constexpr std::array all_over{Over::shards, Over::replicas, Over::data, Over::tp};

/// One buffer of a group.
struct BufferRow {
    Role role{};
    Extent extent{};
    Held held{};
    ElementRole element{};
    std::size_t count = 1;  ///< number of such buffers, one behind the other
};

/// One collective of a group. It runs in place when source and target are one buffer.
struct CollectiveRow {
    When when{};
    Verb verb{};
    Over over{};
    Role source{};
    Role target{};
    Extent extent{};  ///< of the larger buffer: what is gathered, or is to be reduced

    constexpr bool in_place() const noexcept { return source == target; }
};

/// The buffers and collectives of a group. Its stores allocate and call them, and its plan adds them up.
class PlacementTable {
  public:
    static constexpr std::size_t most_collectives = 8;

    Extent updated{};  ///< what an optimizer step updates
    Extent reduced{};  ///< what a rank holds of the reduced gradients

    constexpr std::span<const BufferRow> buffers() const noexcept { return {buffers_.data(), buffer_count_}; }
    constexpr std::span<const CollectiveRow> collectives() const noexcept {
        return {collectives_.data(), collective_count_};
    }
    /// Returns the row of a buffer, or null where the group has none.
    constexpr const BufferRow* find(Role role) const noexcept {
        for (const BufferRow& row : buffers()) {
            if (row.role == role) { return &row; }
        }
        return nullptr;
    }
    /// Returns the rows with that `when`, in order.
    constexpr std::span<const CollectiveRow> collectives(When when) const noexcept {
        std::size_t begin = 0;
        while (begin < collective_count_ && collectives_[begin].when < when) { ++begin; }
        std::size_t end = begin;
        while (end < collective_count_ && collectives_[end].when == when) { ++end; }
        return {collectives_.data() + begin, end - begin};
    }

    /// Returns what a rank holds of the sums of gradients while microbatches are added.
    constexpr Extent summed() const noexcept {
        const BufferRow* const sums = find(Role::reduced);
        return sums != nullptr ? sums->extent : reduced == Extent::full ? Extent::full : Extent::shard;
    }
    /// Leases the buffers that hold gradients.
    constexpr void lease_gradients() noexcept {
        for (BufferRow& row : buffers_) {
            if (row.role == Role::gradients || row.role == Role::reduced) { row.held = Held::leased; }
        }
    }
    constexpr void add(const BufferRow& row) { buffers_.at(buffer_count_++) = row; }
    /// Adds a row.
    /// @pre rows are added in the order of When
    constexpr void add(const CollectiveRow& row) { collectives_.at(collective_count_++) = row; }

  private:
    std::array<BufferRow, 9> buffers_{};
    std::array<CollectiveRow, most_collectives> collectives_{};
    std::size_t buffer_count_ = 0;
    std::size_t collective_count_ = 0;
};

/// Returns the extent of values that are placed so within a group, and across groups.
constexpr Extent extent_of(Placement within, Placement across) noexcept {
    if (within != Placement::sharded) { return Extent::full; }
    return across == Placement::sharded ? Extent::piece : Extent::shard;
}
/// Returns the verb that makes the change.
/// @throws std::logic_error when the change needs no communication, which no row of a valid policy has
constexpr Verb verb_of(rules::Transition change) {
    using rules::Transition;
    if (change == Transition::all_gather) { return Verb::all_gather; }
    if (change == Transition::reduce_scatter) { return Verb::reduce_scatter; }
    if (change == Transition::all_reduce) { return Verb::all_reduce; }
    throw std::logic_error("placement table: a row without communication");
}
/// Makes the table for a valid policy and a group's element types. A group that is not trainable has neither
/// gradients nor an optimizer. `slices` is the number of slices that a rank adds along the tree; 1 where it adds
/// microbatches in turn. `sources` is the number of gradients that it keeps apart: see GroupDescription::sources.
constexpr PlacementTable placement_table(const rules::PolicyValues& policy, const ElementSizes& elements,
                                         bool trainable, std::size_t slices = 1, std::size_t sources = 1) {
    using enum Placement;
    const auto collective = [](When when, Placement from, Placement to, Over over, Role source, Role target,
                               Extent extent) {
        return CollectiveRow{when, verb_of(rules::transition(from, to)), over, source, target, extent};
    };
    PlacementTable table;
    const AxisPlacements within = policy.within_groups();
    const AxisPlacements across = policy.across_groups;
    table.updated = extent_of(within.states, across.states);
    table.reduced = extent_of(within.summed(), across.summed());

    // Parameters: a full copy that a window shows may need a gather.
    const bool leased = policy.release == Release::at_reshard;
    table.add({Role::parameters, extent_of(within.parameters, across.parameters), Held::always, ElementRole::gather});
    if (elements.codes.gathered && within.states == sharded) {
        const When when = elements.codes.block == 0 ? When::coded_window
                          : leased                  ? When::each_window
                                                    : When::updated_window;
        const bool beside = elements.codes.block > 0 && within.parameters == sharded;
        table.add(collective(when, sharded, replicated, Over::shards, Role::parameters,
                             beside ? Role::gathered : Role::parameters, Extent::scales));
    }
    const Role full = within.parameters == sharded ? Role::gathered : Role::parameters;
    if (full == Role::gathered) {
        table.add({full, Extent::full, leased ? Held::leased : Held::always, ElementRole::gather});
    }
    const bool keeps = policy.keep == Keep::secondary;
    if (keeps) { table.add({Role::secondary, Extent::shard, Held::always, ElementRole::gather}); }
    if (full == Role::gathered || (within.states == sharded && trainable)) {
        const When window = leased ? When::each_window : When::updated_window;
        Role source = Role::parameters;
        if (across.states == sharded) {  // the shard first: where it lies in the full copy, it goes with that
            source = across.parameters != sharded ? Role::parameters : keeps ? Role::secondary : full;
            table.add(collective(source == full ? window : When::stale_shard, sharded, replicated, Over::replicas,
                                 Role::parameters, source, Extent::shard));
        }
        table.add(collective(window, sharded, replicated, Over::shards, source, full, Extent::full));
    }
    if (!trainable) { return table; }

    // Optimizer.
    if (elements.has_master) { table.add({Role::master, table.updated, Held::always, ElementRole::master}); }
    table.add({Role::states, table.updated, Held::always, ElementRole::state});

    // Gradients: reduced in place where the types and the policy allow it.
    const bool each = within.reduced == sharded;
    const bool each_across = across.reduced == sharded;
    const Extent sums = extent_of(within.summed(), across.reduced);
    const Role result = each || !elements.reduces_in_place ? Role::reduced : Role::gradients;
    table.add({Role::gradients, Extent::full, each ? Held::leased : Held::always, ElementRole::gradient, sources});
    if (result == Role::reduced) { table.add({Role::reduced, sums, Held::always, ElementRole::reduction}); }
    // Where each microbatch is reduced, the first sum lies where the reduced gradients do.
    const std::size_t subtotals = slices < 2 ? 0 : slice_sums(slices) - (each ? 2 : 1);
    if (subtotals > 0) {
        table.add(
            {Role::subtotals, each ? sums : Extent::full, Held::always, ElementRole::reduction, subtotals * sources});
    }
    if (each) {
        const Role later = elements.reduces_in_place ? Role::gradients : Role::addend;
        if (later == Role::addend) {
            table.add({later, each_across ? Extent::shard : sums, Held::leased, ElementRole::reduction});
        }
        for (const When when : {When::first_microbatch, When::later_microbatch}) {
            const Role into = when == When::first_microbatch ? result : later;
            const Role shard = each_across ? later : into;
            table.add(collective(when, partial, sharded, Over::shards, Role::gradients, shard, Extent::full));
            if (each_across) {
                table.add(collective(when, partial, sharded, Over::replicas, shard, into, Extent::shard));
            }
        }
    } else {
        const Over over = within.summed() == sharded ? Over::shards : Over::data;
        const Role source = subtotals > 0 && !elements.reduces_in_place ? Role::subtotals : Role::gradients;
        table.add(collective(When::last_microbatch, partial, within.summed(), over, source, result, Extent::full));
    }
    if (within.summed() == sharded && !each_across) {
        table.add(collective(When::last_microbatch, partial, across.summed(), Over::replicas, result, result,
                             Extent::shard));
    }
    table.add(collective(When::last_microbatch, partial, replicated, Over::tp, result, result, Extent::tp_sum));
    return table;
}

}  // namespace shardkit::detail
