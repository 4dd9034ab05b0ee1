// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/segments.hpp>
#include <shardkit/param/tensor_view.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/step/reduce.hpp>

// Access to what a rank holds between windows: for moving averages of weights, norms of single parameters, and
// optimizers that no update rule describes.

namespace shardkit {

/// A contiguous run of one parameter's elements on this rank, in the engine's memory.
template <class T>
struct ShardRun {
    std::size_t parameter = 0;  ///< its number in the group
    std::string_view name;      ///< "weight"
    TensorShape part;           ///< shape of the rank's part under tp: the whole tensor where it is not split
    IndexRange range;           ///< the run's elements in that part, row-major
    IndexRange flat;            ///< the run's elements in the group's flat order
    bool frozen = false;
    std::span<T> values;
};

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

/// This rank's reduced gradients of one group: sums in the engine's memory that are not divided yet. It refers to the
/// gradients that it was taken from; a checked build refuses to read it once they were consumed.
template <class T>
class GradientShard {
  public:
    GradientShard(std::span<const T> sums, IndexRange flat, double scale, detail::ViewCheck check) noexcept
        : sums_(sums), flat_(flat), scale_(scale), check_(check) {}

    /// Returns all elements held, with the padding between parameters, whose values have no meaning.
    std::span<const T> sums() const {
        check_();
        return sums_;
    }
    /// Returns the range of these elements in the group's flat order.
    IndexRange flat() const noexcept { return flat_; }
    /// Returns the factor that turns a sum into a gradient: one over the divisor, and over the loss scale if there is
    /// one.
    double scale() const noexcept { return scale_; }
    /// Returns the sums of the elements of a run of the same group.
    /// @throws std::invalid_argument when not all of them are held here
    template <class Value>
    std::span<const T> of(const ShardRun<Value>& run, SourceLocation where = SourceLocation::current()) const {
        if (run.flat.begin < flat_.begin || run.flat.end > flat_.end) {
            throw_invalid_argument(where, "gradient_shard holds elements ", flat_.begin, " to ", flat_.end,
                                   " of its group, and '", run.name, "' here has ", run.flat.begin, " to ",
                                   run.flat.end, "; expected a run of the same group");
        }
        return sums().subspan(run.flat.begin - flat_.begin, run.flat.size());
    }

  private:
    std::span<const T> sums_;
    IndexRange flat_;
    double scale_;
    [[no_unique_address]] detail::ViewCheck check_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit {

namespace detail {

/// Returns the group's reduced gradients after waiting for every reduction.
template <class State>
auto await_sums(State& state) {
    state.await_reduced();
    await_host_memory(state.context());
    return state.gradients().reduced();
}

/// Calls f(run) for each parameter with elements that this rank updates. `Shown` adds const to the runs or leaves
/// them.
template <template <class> class Shown, class State, class F>
void show_runs(State& state, const F& f, SourceLocation where) {
    constexpr bool writes = !std::is_const_v<Shown<int>>;
    using Precision = typename State::Precision;
    constexpr bool takes_master = std::invocable<const F&, ShardRun<Shown<typename Precision::Master>>>;
    constexpr bool takes_gathered = std::invocable<const F&, ShardRun<Shown<typename Precision::Written>>>;
    static_assert(takes_master || takes_gathered,
                  "read_shards and update_shards: f takes a ShardRun<T> by value, where T is the element type of the "
                  "group's master weights (const in read_shards), or anything, as a generic lambda does");
    const auto show = [&](auto values) {
        using Value = Shown<typename decltype(values)::value_type>;
        if constexpr (std::invocable<const F&, ShardRun<Value>>) {
            const GroupGeometry& group = state.geometry();
            const std::size_t origin = group.updated.begin;
            for_each_segment(group.parameters, group.updated, [&](Segment segment) {
                const PlacedParameter& parameter = group.parameters[segment.parameter];
                f(ShardRun<Value>{segment.parameter, parameter.name, parameter.part.shape(),
                                  relative_to(segment.flat, parameter.range.begin), segment.flat,
                                  parameter.frozen || !group.trainable,
                                  values.subspan(segment.flat.begin - origin, segment.flat.size())});
            });
        } else {
            state.refuse_group(
                where,
                "the shards in hand are of another type than f takes: a group that is frozen or rounds "
                "stochastically keeps no master weights; expected a generic f");
        }
    };
    if constexpr (writes) {
        state.write_updated(show);
    } else {
        state.show_updated(show);
    }
}

}  // namespace detail

/// Returns this rank's reduced gradients of `layer`, after every reduction: for optimizers of your own and statistics
/// of single parameters. Nothing is communicated.
/// Order:   later work on the compute stream sees the sums; in host memory they can be read at once. With a loss
///          scale the host waits for the compute stream
/// @throws  UsageError for a skipped or frozen group, or one of another model, and when the gradients were consumed
template <class Engine, class Layer>
[[nodiscard]] auto gradient_shard(const Reduced<Engine>& reduced, Layer& layer,
                                  SourceLocation where = SourceLocation::current()) {
    using Sum = typename Layer::Precision::Reduction;
    auto& state = detail::Access::state_of(reduced, layer, "gradient_shard", where);
    state.require_gradients("gradient_shard", where);
    return GradientShard<Sum>(detail::await_sums(state), state.gradients().reduced_range(),
                              detail::Access::scale(reduced, state.context()), {state.gradient_generation(), where});
}

/// Returns the memory of this rank's reduced gradients of `layer` (its shard, or all where gradients are replicated),
/// for a program to write before assume_reduced.
/// @throws  UsageError during an accumulation and while its reduced gradients live: streams may still write the
/// memory
template <class Layer>
[[nodiscard]] std::span<typename Layer::Precision::Reduction> gradient_shard(
    Layer& layer, SourceLocation where = SourceLocation::current()) {
    auto& state = detail::Access::state(layer, where);
    if (state.step().busy()) {
        state.refuse_group(
            where,
            "gradient_shard(layer) is for sums of the program's own, before assume_reduced, and a step "
            "over the group is under way; read its gradients by gradient_shard(reduced, layer)");
    }
    state.step().require_release(state.path(), "gradient_shard", where);
    return detail::await_sums(state);
}

/// Calls f(ShardRun<const T>) for each parameter of `layer` with elements that this rank updates. T is the master
/// type where the group keeps master weights, otherwise the gathered type (as in a frozen group, or with stochastic
/// rounding); a generic f takes both. Nothing is communicated, and padding is not shown.
/// An element is shown on each rank that keeps it: on one rank under the policies that shard, on one of each shard
/// group under HybridShard<N>, on all ranks under NoShard, and on every rank of tp where tp does not split the
/// parameter. A sum over the world has it as often: sum over the ranks of one copy, such as those of
/// `context.communicator<Axes<DpShard>>(N)`, and not at all under NoShard.
/// Order:   as gradient_shard
/// @throws  UsageError when values are half written by a failed write
template <class Layer, class F>
void read_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    auto& state = detail::Access::state(layer, where);
    state.require_whole("read_shards", where);
    detail::await_host_memory(state.context());
    detail::show_runs<std::add_const_t>(state, f, where);
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
    state.require_whole("update_shards", where);
    state.begin_write(where);
    detail::await_host_memory(state.context());
    const std::size_t parameters = state.geometry().parameters.size();
    for (std::size_t p = parameters; p > 0; --p) {
        state.torn().begin(p - 1, detail::TornValues::parameters, "update_shards", where);
    }
    detail::show_runs<std::type_identity_t>(state, f, where);
    for (std::size_t p = 0; p < parameters; ++p) { state.torn().end(p, detail::TornValues::parameters); }
    state.end_load();
}

}  // namespace shardkit
