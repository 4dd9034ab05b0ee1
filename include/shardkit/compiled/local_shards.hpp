// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include <shardkit/compiled/model.hpp>
#include <shardkit/compiled/step.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/step/shard_runs.hpp>

// What step/local_shards.hpp is in the compiled form.

namespace shardkit::detail SHARDKIT_BUILD {

/// Gives the elements of a group, whose type is a value, to a function of the user's by parameter. `Shown` adds const
/// to the runs or leaves them.
template <template <class> class Shown, class Precision, class F>
struct RunsFor {
    compiled::Group& group;
    const F& f;
    SourceLocation where;

    template <class T>
    bool show_if(ElementType type, void* values) const {
        if constexpr (std::invocable<const F&, ShardRun<Shown<T>>>) {
            if (type == element_type_of<T>) {
                list_runs<Shown<T>>(parameters_of(group.of_core), group.updated, !trains(group.of_core),
                                    static_cast<T*>(values), f);
                return true;
            }
        }
        return false;
    }
    static void show(void* to, ElementType type, void* values) {
        const auto& runs = *static_cast<const RunsFor*>(to);
        if (runs.template show_if<typename Precision::Master>(type, values)) { return; }
        if (runs.template show_if<typename Precision::Written>(type, values)) { return; }
        compiled::refuse_group(runs.group, runs.where, other_shards);
    }
};
template <template <class> class Shown, class Layer, class F>
void show_runs(Layer& layer, const F& f, SourceLocation where) {
    using Precision = typename Layer::Precision;
    check_shard_function<Shown, Precision, F>();
    RunsFor<Shown, Precision, F> runs{Access::state(layer, where).core(), f, where};
    runs.group.show_updated(!std::is_const_v<Shown<int>>, &runs.show, &runs, where);
}

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Returns this rank's reduced gradients of `layer`, after every reduction: see step/local_shards.hpp.
template <class Layer>
[[nodiscard]] auto gradient_shard(const Reduced& reduced, Layer& layer,
                                  SourceLocation where = SourceLocation::current()) {
    using Sum = typename Layer::Precision::Reduction;
    auto& group = detail::Access::state(layer, where).core();
    const compiled::Sums sums = group.sums(&reduced.core(where), where);
    return GradientShard<Sum>({static_cast<const Sum*>(sums.data), sums.flat.size()}, sums.flat, sums.scale,
                              {*group.gradient_generation, where});
}
template <class Layer>
[[nodiscard]] std::span<typename Layer::Precision::Reduction> gradient_shard(
    Layer& layer, SourceLocation where = SourceLocation::current()) {
    const compiled::Sums sums = detail::Access::state(layer, where).core().sums(nullptr, where);
    return {static_cast<typename Layer::Precision::Reduction*>(sums.data), sums.flat.size()};
}
/// Calls f(ShardRun<const T>) for each parameter of `layer` with elements that this rank updates.
template <class Layer, class F>
void read_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    detail::show_runs<std::add_const_t>(layer, f, where);
}
/// Calls f(ShardRun<T>) to write the elements that this rank updates.
template <class Layer, class F>
void update_shards(Layer& layer, const F& f, SourceLocation where = SourceLocation::current()) {
    detail::show_runs<std::type_identity_t>(layer, f, where);
}

}  // namespace SHARDKIT_BUILD
