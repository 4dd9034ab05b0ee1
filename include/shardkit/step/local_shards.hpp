// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/step/argument_types.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/shard_runs.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#endif

// Access to what a rank holds between windows: for moving averages of weights, norms of single parameters, and
// optimizers that no update rule describes.

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// Calls show(to, type, values) with the elements that this rank updates: master weights, or gathered ones where the
/// group keeps none. Where they are written, every parameter is torn until it has returned.
void show_updated(Group& group, bool to_write, ShownTo show, void* to, SourceLocation where);
/// Returns which elements these are, of the group's flat order.
IndexRange updated_of(const Group& group) noexcept;
/// Sums of gradients that this rank has of a group.
struct GradientSums {
    void* data;
    IndexRange flat;                  ///< of the group's flat order
    double scale;                     ///< turns a sum into a gradient
    const std::uint64_t* generation;  ///< which views compare in a checked build
};
/// Returns those that the program's own kernels have made, after every reduction.
/// @throws UsageError where there are none
GradientSums own_sums(Group& group, SourceLocation where);
/// Returns those of a step. @throws UsageError as that
GradientSums sums_of(const Reduced& reduced, Group& group, SourceLocation where);

#ifndef SHARDKIT_COMPILED
SHARDKIT_CORE_INLINE void show_updated(Group& group, bool to_write, ShownTo show, void* to, SourceLocation where) {
    const char* const verb = to_write ? "update_shards" : "read_shards";
    group.require_whole(verb, where);
    if (to_write) { group.begin_write(where); }
    await_host_memory(group.rank());
    if (!to_write) { return group.show_updated(false, show, to); }
    const std::size_t parameters = group.geometry().parameters.size();
    for (std::size_t p = parameters; p > 0; --p) { group.torn().begin(p - 1, TornValues::parameters, verb, where); }
    group.show_updated(true, show, to);
    for (std::size_t p = 0; p < parameters; ++p) { group.torn().end(p, TornValues::parameters); }
    group.end_load();
}
SHARDKIT_CORE_INLINE IndexRange updated_of(const Group& group) noexcept { return group.geometry().updated; }
/// Waits for every reduction.
inline GradientSums await_sums(Group& group, double scale) {
    group.gradients().wait();
    await_host_memory(group.rank());
    return {group.gradients().reduced().data(), group.gradients().reduced_range(), scale,
            &group.gradient_generation()};
}
SHARDKIT_CORE_INLINE GradientSums own_sums(Group& group, SourceLocation where) {
    if (group.step().busy()) {
        refuse_group(group, where,
                     "gradient_shard(layer) is for sums of the program's own, before assume_reduced, and a step "
                     "over the group is under way; read its gradients by gradient_shard(reduced, layer)");
    }
    group.step().require_release(group.path(), "gradient_shard", where);
    return await_sums(group, 1);
}
SHARDKIT_CORE_INLINE GradientSums sums_of(const Reduced& reduced, Group& group, SourceLocation where) {
    reduced.require(group, "gradient_shard", where);
    group.require_gradients("gradient_shard", where);
    GradientSums sums = await_sums(group, 1);
    sums.scale = reduced.scale(group.rank());
    return sums;
}
#endif

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_BUILD {

/// Gives the elements of a group, whose type is a value, to a function of the user's by parameter. `Shown` adds const
/// to the runs or leaves them.
template <template <class> class Shown, class Precision, class F>
struct RunsFor {
    Group& group;
    const F& f;
    SourceLocation where;

    template <class T>
    bool show_if(ElementType type, void* values) const {
        if constexpr (std::invocable<const F&, ShardRun<Shown<T>>>) {
            if (type == element_type_of<T>) {
                list_runs<Shown<T>>(parameters_of(group), updated_of(group), !trains(group), static_cast<T*>(values),
                                    f);
                return true;
            }
        }
        return false;
    }
    static void show(void* to, ElementType type, void* values) {
        const auto& runs = *static_cast<const RunsFor*>(to);
        if (runs.template show_if<typename Precision::Master>(type, values)) { return; }
        if (runs.template show_if<typename Precision::Written>(type, values)) { return; }
        refuse_group(runs.group, runs.where, other_shards);
    }
};
template <template <class> class Shown, class Layer, class F>
void show_runs(Layer& layer, const F& f, SourceLocation where) {
    using Precision = typename Layer::Precision;
    check_shard_function<Shown, Precision, F>();
    RunsFor<Shown, Precision, F> runs{spi::group(layer, where), f, where};
    show_updated(runs.group, !std::is_const_v<Shown<int>>, &runs.show, &runs, where);
}

}  // namespace shardkit::detail SHARDKIT_BUILD

namespace shardkit SHARDKIT_FACE {

/// Returns this rank's reduced gradients of `layer`, after every reduction: for optimizers of your own and statistics
/// of single parameters. Nothing is communicated.
/// Order:   later work on the compute stream sees the sums; in host memory they can be read at once. With a loss
///          scale the host waits for the compute stream
/// @throws  UsageError for a skipped or frozen group, or one of another model, and when the gradients were consumed
template <class Layer>
[[nodiscard]] auto gradient_shard(const Reduced& reduced, Layer& layer,
                                  SourceLocation where = SourceLocation::current()) {
    using Sum = typename Layer::Precision::Reduction;
    const detail::GradientSums sums = detail::sums_of(reduced, spi::group(layer, where), where);
    return GradientShard<Sum>({static_cast<const Sum*>(sums.data), sums.flat.size()}, sums.flat, sums.scale,
                              {*sums.generation, where});
}

/// Returns the memory of this rank's reduced gradients of `layer` (its shard, or all where gradients are replicated),
/// for a program to write before assume_reduced.
/// @throws  UsageError during an accumulation and while its reduced gradients live: streams may still write the
/// memory
template <class Layer>
[[nodiscard]] std::span<typename Layer::Precision::Reduction> gradient_shard(
    Layer& layer, SourceLocation where = SourceLocation::current()) {
    const detail::GradientSums sums = detail::own_sums(spi::group(layer, where), where);
    return {static_cast<typename Layer::Precision::Reduction*>(sums.data), sums.flat.size()};
}

/// Calls f(ShardRun<const T>) for each parameter of `layer` with elements that this rank updates. T is the master
/// type where the group keeps master weights, otherwise the gathered type (as in a frozen group, or with stochastic
/// rounding); a generic f takes both. Nothing is communicated, and padding is not shown.
/// An element is shown on each rank that keeps it: on one rank under the policies that shard, on one of each shard
/// group under HybridShard<N>, on all ranks under NoShard, and on every rank of tp where tp does not split the
/// parameter. A sum over the world has it as often: sum over the ranks of one copy, such as those of
/// `rank.communicator<Axes<DpShard>>(N)`, and not at all under NoShard.
/// Order:   as gradient_shard
/// @throws  UsageError when values are half written by a failed write
template <class Layer, class F>
void read_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    detail::show_runs<std::add_const_t>(layer, f, where);
}

/// Calls f(ShardRun<T>) to write the elements that this rank updates, as an optimizer's step does. Windows opened
/// afterwards show the new values, rounded to nearest from the master weights where the group keeps them. Where
/// parameters are replicated, every rank must write the same values. Optimizer states stay unchanged.
/// Order:   f gives its work to the compute stream, or writes on the host where the engine's memory is the host's.
///          Local work; the next window's gather makes the values visible to other ranks
/// @throws  UsageError when a window is open; after an exception of f the group refuses to train until a load or an
///          initialize has succeeded
template <class Layer, class F>
void update_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    detail::show_runs<std::type_identity_t>(layer, f, where);
}

}  // namespace SHARDKIT_FACE
