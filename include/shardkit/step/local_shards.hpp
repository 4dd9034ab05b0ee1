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

// What a rank holds between windows, in the hands of the program: for moving averages of weights, norms of single
// parameters, and optimizers that no rule describes.

namespace shardkit {

/// A run of one parameter's elements on this rank, in the engine's memory.
template <class T>
struct ShardRun {
    std::size_t parameter = 0;  ///< its number in the group
    std::string_view name;      ///< "weight"
    TensorShape part;           ///< of what the rank's place in tp gives it: the whole tensor, or a part of it
    IndexRange range;           ///< elements of that part, row-major
    IndexRange flat;            ///< the same elements in the group's flat order
    bool frozen = false;
    std::span<T> values;
};

inline namespace SHARDKIT_BUILD {

/// This rank's reduced gradients of one group: sums in the engine's memory, which are not divided yet. Refers to the
/// gradients that it was taken from; a checked build refuses to read it once they were consumed.
template <class T>
class GradientShard {
  public:
    GradientShard(std::span<const T> sums, IndexRange flat, double scale, detail::ViewCheck check) noexcept
        : sums_(sums), flat_(flat), scale_(scale), check_(check) {}

    /// Every element that is held, with the padding between parameters, which has no meaning.
    std::span<const T> sums() const {
        check_();
        return sums_;
    }
    /// Which elements of the group's flat order these are.
    IndexRange flat() const noexcept { return flat_; }
    /// A sum times this is a gradient: one over the divisor, and over the loss scale where there is one.
    double scale() const noexcept { return scale_; }
    /// The sums of the elements of a run of the same group.
    /// @throws std::invalid_argument when they are not all held here
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

namespace detail {

/// The reduced gradients of a group, where every reduction has reached them.
template <class State>
auto await_sums(State& state) {
    state.await_reduced();
    await_host_memory(state.context());
    return state.gradients().reduced();
}

/// f(run) for every parameter with elements among those that this rank updates; the runs are const where `Shown` is.
template <template <class> class Shown, class State, class F>
void show_runs(State& state, const F& f, SourceLocation where) {
    using Precision = typename State::Precision;
    constexpr bool takes_master = std::invocable<const F&, ShardRun<Shown<typename Precision::Master>>>;
    constexpr bool takes_gathered = std::invocable<const F&, ShardRun<Shown<typename Precision::Gather>>>;
    static_assert(takes_master || takes_gathered,
                  "read_shards and update_shards: f takes a ShardRun<T> by value, where T is the element type of the "
                  "group's master weights (const in read_shards), or anything, as a generic lambda does");
    state.show_updated([&](auto values) {
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
    });
}

}  // namespace detail

/// This rank's reduced gradients of `layer`, which every reduction has reached: for optimizers of your own and
/// statistics of single parameters. Nothing is communicated.
/// Order:   work that the compute stream gets afterwards sees the sums; in the host's memory they can be read at
/// once.
///          With a loss scale the host waits for the compute stream
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

/// The memory that holds this rank's reduced gradients of `layer` (its shard, or everything where gradients
/// are replicated), for adopters to write before assume_reduced.
/// @throws  UsageError while an accumulation or its reduced gradients live: the engine's streams may still write it
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
    return detail::await_sums(state);
}

/// Shows what this rank updates of `layer`, parameter by parameter: f(ShardRun<const T>), where T is the master's
/// type if the group keeps master weights, and the gathered one's if not, as in a frozen group or one that rounds
/// stochastically: a generic f takes both. Nothing is communicated, and no padding shown.
/// Order:   as gradient_shard
/// @throws  UsageError when the values are half written
template <class Layer, class F>
void read_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    auto& state = detail::Access::state(layer, where);
    state.require_whole("read_shards", where);
    detail::await_host_memory(state.context());
    detail::show_runs<std::add_const_t>(state, f, where);
}

/// The same to be written, as an optimizer's step writes it: f(ShardRun<T>). Windows that are opened afterwards show
/// the new values; where the group keeps master weights, rounded to nearest from them.
/// Where parameters are replicated every rank has to write the same. Optimizer states stay as they are.
/// Order:   f gives its work to the compute stream, or writes on the host where that is the engine's memory. Local
///          work; what makes the values visible is the next window's gather
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
    state.renew_gather_source();
    for (std::size_t p = 0; p < parameters; ++p) { state.torn().end(p, detail::TornValues::parameters); }
    state.end_load();
}

}  // namespace shardkit
