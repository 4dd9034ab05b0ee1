// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/policy/slice_order.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
/// Returns the first of a model's trainable groups, null if there is none, and checks that all of them take slices in
/// the same order.
/// @throws std::invalid_argument, which names two groups that differ
const Group* first_by_slices(const Model& model, SourceLocation where);
/// Returns this rank's number among the ranks that take slices.
std::size_t data_index_of(const Group& group) noexcept;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {

/// Returns the order in which ranks take the slices of this model.
/// @throws UsageError for a model without slices; std::invalid_argument where its groups take them in different
/// orders
SliceOrder slice_order(const Model& model, SourceLocation where = SourceLocation::current());
/// Returns the number of the slice of the global batch that this rank takes at `microbatch` of every step. A trainer
/// that reads sample slice * B + i as number i of the slice's B samples trains on the same data on any number of
/// ranks.
///     for (std::size_t m = 0; m < slice_order(model).microbatches(); ++m) { train_on(slice_of(model, m)); }
/// @throws UsageError for a model without slices; std::invalid_argument for a microbatch that it does not have, and
///         where its groups take slices in different orders
template <std::integral Number>
std::size_t slice_of(const Model& model, Number microbatch, SourceLocation where = SourceLocation::current()) {
    const SliceOrder order = slice_order(model, where);
    if (!std::in_range<std::size_t>(microbatch) || std::cmp_greater_equal(microbatch, order.microbatches())) {
        throw_invalid_argument(where, "slice_of: microbatch ", microbatch, " given, expected one below ",
                               order.microbatches());
    }
    const std::size_t place = detail::data_index_of(*detail::first_by_slices(model, where));
    return slice_of(order, place, static_cast<std::size_t>(microbatch));
}

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
SHARDKIT_CORE_INLINE const Group* first_by_slices(const Model& model, SourceLocation where) {
    const Group* first = nullptr;
    for (const Group& group : spi::groups(model, where)) {
        if (!group.trainable()) { continue; }
        if (first == nullptr) { first = &group; }
        const SliceOrder a = first->order_of_slices();
        const SliceOrder b = group.order_of_slices();
        if (a == b) { continue; }
        const auto described = [](const SliceOrder& order) {
            return concat(order.slices, " slices, ", order.together, " rank(s) summed in each microbatch");
        };
        throw_invalid_argument(where, "Model: '", first->path(), "' has ", described(a), ", '", group.path(),
                               "' has ", described(b),
                               "; expected policies that take slices in one order for all groups");
    }
    return first;
}
SHARDKIT_CORE_INLINE std::size_t data_index_of(const Group& group) noexcept { return group.geometry().data_index(); }
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit SHARDKIT_FACE {
SHARDKIT_CORE_INLINE SliceOrder slice_order(const Model& model, SourceLocation where) {
    const auto* const first = detail::first_by_slices(model, where);
    if (first == nullptr || first->order_of_slices().slices == 0) {
        detail::refuse_use(where,
                           "slice_order of a model without slices; expected policies as "
                           "TreeSums<FullShard>{Slices{64}}");
    }
    return first->order_of_slices();
}
}  // namespace SHARDKIT_FACE
#endif
