// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_geometry.hpp>

namespace shardkit::detail {

/// The NaN that a checked build writes where a backward pass must overwrite: a sum with it stays this NaN.
template <FloatingElement T>
T unwritten() noexcept {
    return static_cast<T>(static_cast<Arithmetic<T>>(std::bit_cast<float>(std::uint32_t{0x7fe50000U})));
}
/// Whether T tells that NaN from the one that arithmetic makes.
template <FloatingElement T>
bool tells_unwritten() noexcept {
    const T made = static_cast<T>(std::numeric_limits<Arithmetic<T>>::quiet_NaN());
    const T mark = unwritten<T>();
    return std::memcmp(&made, &mark, sizeof(T)) != 0;
}

/// Returns the ranges of a group's full gradients, of all sources, that must be zeroed: all that nobody overwrites.
inline List<IndexRange> zeroed_ranges(const GroupGeometry& geometry) {
    List<IndexRange> ranges;
    for (std::size_t source = 0; source < geometry.sources(); ++source) {
        const std::size_t begin = source * geometry.buffer_numel;
        std::size_t zeroed = 0;
        for (const PlacedParameter& p : geometry.parameters) {
            if (!p.leaves_unzeroed()) { continue; }
            if (zeroed < p.range.begin) { ranges.push_back({begin + zeroed, begin + p.range.begin}); }
            zeroed = p.range.end;
        }
        if (zeroed < geometry.buffer_numel) { ranges.push_back({begin + zeroed, begin + geometry.buffer_numel}); }
    }
    return ranges;
}

/// Checks, where the host reads full gradients, that a backward pass has overwritten those of parameters that were
/// not zeroed for it.
/// @throws UsageError that names parameter and element
template <class Engine, class Gradient>
void require_overwritten(const Context<Engine>& context, const GroupGeometry& geometry,
                         std::span<const Gradient> full, SourceLocation where) {
    if constexpr (host_reads<Engine>) {
        if (!tells_unwritten<Gradient>()) { return; }
        await_host_memory(context);
        const Gradient mark = unwritten<Gradient>();
        for (const PlacedParameter& parameter : geometry.parameters) {
            if (!parameter.leaves_unzeroed()) { continue; }
            const IndexRange range = parameter.range;
            for (std::size_t i = 0; i < geometry.sources() * range.size(); ++i) {
                const std::size_t source = i / range.size(), element = i % range.size();
                const std::size_t at = source * geometry.buffer_numel + range.begin + element;
                if (std::memcmp(&full[at], &mark, sizeof mark) != 0) { continue; }
                throw_usage_error(where, "'", geometry.path, "' parameter '", parameter.name, "': element ", element,
                                  " of its gradient was not overwritten, or was added to; expected all of them "
                                  "to be overwritten where gradients.overwrites(parameter)");
            }
        }
    }
}

}  // namespace shardkit::detail
