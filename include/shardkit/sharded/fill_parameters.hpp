// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/placed_parameter.hpp>
#include <shardkit/param/initial_values.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/torn_values.hpp>

namespace shardkit::detail {

/// Sets neighbouring elements of a parameter's part, for Kernels::for_each_index.
template <class T, class Rounding, class F>
struct FillWork {
    F value;
    TensorPart part;
    std::size_t first;
    T* to;

    constexpr T operator[](std::uint64_t i) const {
        return Rounding::template of<T>(static_cast<double>(value(std::uint64_t{part.whole_index(first + i)})));
    }
    constexpr void operator()(std::uint64_t i) const { to[i] = (*this)[i]; }
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_BUILD {

template <class Engine, class Precision>
template <class Rounding, class T, class F>
void GroupState<Engine, Precision>::fill_range(std::size_t parameter, std::span<T> target, std::size_t origin,
                                               const F& value, ValuesDigest* digest) {
    const PlacedParameter& filled = geometry_.parameters[parameter];
    const IndexRange range = intersect(filled.range, {origin, origin + target.size()});
    if (range.empty()) { return; }
    const std::size_t first = range.begin - filled.range.begin;
    const FillWork<T, Rounding, F> work{value, filled.part, first, target.data() + (range.begin - origin)};
    Engine::Kernels::for_each_index(context_.compute_stream(), range.size(), work);
    if constexpr (FloatingElement<T>) {
        if (digest == nullptr) { return; }
        digest->template add_each<T>(first, range.size(), [&](std::size_t i) { return work[i]; });
    }
}

/// Compiled only for engines with IndexKernels.
template <class Engine, class Precision>
template <GivesFunctions F>
void GroupState<Engine, Precision>::fill(F& value, SourceLocation where) {
    this->begin_initialize(where);
    for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
        const auto its = function_of(value, geometry_.path, geometry_.parameters[p].name);
        static_assert(
            std::is_trivially_copyable_v<decltype(its)>,
            "initialize: the function of an index is copied to the engine: expected a trivially copyable one");
        ValuesDigest digest(geometry_.parameters[p].range.size());
        for_each_written(statements_.compares_values() ? &digest : nullptr,
                         [&](auto target, std::size_t origin, auto rounding, ValuesDigest* to) {
                             fill_range<decltype(rounding)>(p, target, origin, its, to);
                         });
        settle_frozen(p);
        parameters_.end_write();
        torn_.end(p, TornValues::parameters);
        if (statements_.compares_values()) { statements_.set_values(p, digest); }
    }
}

}  // namespace shardkit::detail SHARDKIT_BUILD
