// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/elements.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/param/params.hpp>

namespace shardkit {

/// The full values of parameter P with the line that gave them, for Sharded::from_full. Made by `full_values`.
template <ParamType P, FloatingElement T>
struct FullValues {
    std::span<const T> values;
    SourceLocation where;
};
/// Returns the full values of parameter P for Sharded::from_full, from an array, a vector or a span.
template <ParamType P, class Values>
auto full_values(const Values& values, SourceLocation where = SourceLocation::current()) {
    static_assert(detail::ValuesRules<const Values>::are_read);
    static_assert(detail::ValuesOfGroup<typename P::Element, const Values>::both_opaque);
    return FullValues<P, detail::ElementIn<const Values>>{detail::elements_of(values), where};
}

/// The user's own memory for Sharded::adopt: full flat buffers in the order of the layout.
template <class Gather, class Gradient>
struct AdoptedMemory {
    std::span<Gather> parameters;
    std::span<Gradient> gradients;  ///< empty: the library allocates its own
};

}  // namespace shardkit
