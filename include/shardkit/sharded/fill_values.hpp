// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/param/initial_values.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/whole_tensor.hpp>

// First values that the engine's kernels compute.

namespace shardkit::detail SHARDKIT_BUILD {

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
/// Does with a kernel what write_rounded does.
template <class Rounding, class T, class F>
void fill_rounded(const Rank& rank, const PlacedParameter& filled, std::span<T> target, std::size_t origin,
                  const F& value, ValuesDigest* digest) {
    const IndexRange range = intersect(filled.range, {origin, origin + target.size()});
    if (range.empty()) { return; }
    const std::size_t first = range.begin - filled.range.begin;
    const FillWork<T, Rounding, F> work{value, filled.part, first, target.data() + (range.begin - origin)};
    host::AnyKernels::for_each_index(rank.compute_stream(), range.size(), work);
    if constexpr (FloatingElement<T>) {
        if (digest == nullptr) { return; }
        digest->template add_each<T>(first, range.size(), [&](std::size_t i) { return work[i]; });
    }
}

/// Sets every element from value(path, parameter name)(index in the whole tensor), with the engine's kernels by
/// index.
template <class Precision, GivesFunctions F>
void fill_values(Group& group, F& value, SourceLocation where) {
    group.begin_initialize(where);
    for (std::size_t p = 0; p < group.geometry().parameters.size(); ++p) {
        const PlacedParameter& filled = group.geometry().parameters[p];
        const auto its = function_of(value, group.path(), filled.name);
        static_assert(
            std::is_trivially_copyable_v<decltype(its)>,
            "initialize: the function of an index is copied to the engine: expected a trivially copyable one");
        group.write_each(p, [&](WrittenAs how, const StoredElements& target, std::size_t origin, ValuesDigest* to) {
            in_form<Precision>(how, target, [&](auto elements, auto rounding) {
                fill_rounded<decltype(rounding)>(group.rank(), filled, elements, origin, its, to);
            });
        });
    }
}

}  // namespace shardkit::detail SHARDKIT_BUILD
