// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/detail/access.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/step/shard_runs.hpp>

// Access to what a rank holds between windows: for moving averages of weights, norms of single parameters, and
// optimizers that no update rule describes.

namespace shardkit {

namespace detail {

/// Returns the group's reduced gradients after waiting for every reduction.
template <class State>
StoredElements await_sums(State& state) {
    state.gradients().wait();
    await_host_memory(state.rank());
    return state.gradients().reduced();
}

/// Calls show(values) with the elements that this rank updates: master weights, or gathered ones where the group
/// keeps none.
template <class State, class Show>
void show_updated(State& state, const Show& show, SourceLocation where) {
    state.require_whole("read_shards", where);
    await_host_memory(state.rank());
    state.show_updated(show);
}
/// The same to write them: every parameter is torn until `show` has returned.
template <class State, class Show>
void write_updated(State& state, const Show& show, SourceLocation where) {
    state.require_whole("update_shards", where);
    state.begin_write(where);
    await_host_memory(state.rank());
    const std::size_t parameters = state.geometry().parameters.size();
    for (std::size_t p = parameters; p > 0; --p) {
        state.torn().begin(p - 1, TornValues::parameters, "update_shards", where);
    }
    state.write_updated(show);
    for (std::size_t p = 0; p < parameters; ++p) { state.torn().end(p, TornValues::parameters); }
    state.end_load();
}

/// Returns a function of the elements that this rank updates, which calls f(run) for each parameter's. `Shown` adds
/// const to the runs or leaves them.
template <template <class> class Shown, class State, class F>
auto runs_for(State& state, const F& f, SourceLocation where) {
    check_shard_function<Shown, typename State::Precision, F>();
    return [&state, &f, where](auto values) {
        using Value = Shown<typename decltype(values)::value_type>;
        if constexpr (std::invocable<const F&, ShardRun<Value>>) {
            const GroupGeometry& group = state.geometry();
            list_runs<Value>(group.parameters, group.updated, !group.trainable, values.data(), f);
        } else {
            state.refuse_group(where, other_shards);
        }
    };
}
/// Returns a group's sums for gradient_shard, after every reduction. @throws UsageError where there are none
template <class State>
StoredElements own_sums(State& state, SourceLocation where) {
    if (state.step().busy()) {
        state.refuse_group(
            where,
            "gradient_shard(layer) is for sums of the program's own, before assume_reduced, and a step "
            "over the group is under way; read its gradients by gradient_shard(reduced, layer)");
    }
    state.step().require_release(state.path(), "gradient_shard", where);
    return await_sums(state);
}
/// Returns those of a step for gradient_shard. @throws UsageError as that
template <class Layer>
StoredElements sums_of(const Reduced& reduced, Layer& layer, SourceLocation where) {
    auto& state = Access::state_of(reduced, layer, "gradient_shard", where);
    state.require_gradients("gradient_shard", where);
    return await_sums(state);
}

}  // namespace detail

/// Returns this rank's reduced gradients of `layer`, after every reduction: for optimizers of your own and statistics
/// of single parameters. Nothing is communicated.
/// Order:   later work on the compute stream sees the sums; in host memory they can be read at once. With a loss
///          scale the host waits for the compute stream
/// @throws  UsageError for a skipped or frozen group, or one of another model, and when the gradients were consumed
template <class Layer>
[[nodiscard]] auto gradient_shard(const Reduced& reduced, Layer& layer,
                                  SourceLocation where = SourceLocation::current()) {
    using Sum = typename Layer::Precision::Reduction;
    const detail::StoredElements sums = detail::sums_of(reduced, layer, where);
    auto& state = detail::Access::state(layer, where);
    return GradientShard<Sum>(std::span<const Sum>(sums), state.gradients().reduced_range(),
                              detail::Access::scale(reduced, state.rank()), {state.gradient_generation(), where});
}

/// Returns the memory of this rank's reduced gradients of `layer` (its shard, or all where gradients are replicated),
/// for a program to write before assume_reduced.
/// @throws  UsageError during an accumulation and while its reduced gradients live: streams may still write the
/// memory
template <class Layer>
[[nodiscard]] std::span<typename Layer::Precision::Reduction> gradient_shard(
    Layer& layer, SourceLocation where = SourceLocation::current()) {
    return detail::own_sums(detail::Access::state(layer, where), where);
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
    auto& state = detail::Access::state(layer, where);
    detail::show_updated(state, detail::runs_for<std::add_const_t>(state, f, where), where);
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
    auto& state = detail::Access::state(layer, where);
    detail::write_updated(state, detail::runs_for<std::type_identity_t>(state, f, where), where);
}

}  // namespace shardkit
