// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <shardkit/core/element.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>

namespace shardkit::detail {

/// What norms of some elements are made of.
struct PartialNorms {
    double squares = 0;  ///< their sum; NaN after a NaN
    double largest = 0;  ///< magnitude of those that are no NaN
    double nan = 0;      ///< 1 where there is a NaN

    constexpr PartialNorms() noexcept = default;
    /// Of one element. Tells a NaN by its bits, as is_finite does.
    constexpr explicit PartialNorms(double value) noexcept
        : squares(value * value), largest(value < 0 ? -value : value) {
        if (is_finite(value)) { return; }
        nan = std::bit_cast<std::uint64_t>(value) << 12U == 0 ? 0 : 1;
        largest = nan > 0 ? 0 : std::numeric_limits<double>::infinity();
    }

    constexpr void add(const PartialNorms& other) noexcept {
        squares += other.squares;
        largest = other.largest > largest ? other.largest : largest;
        nan = other.nan > nan ? other.nan : nan;
    }
    /// Whether one of the elements is infinite or NaN.
    constexpr bool found_inf() const noexcept { return nan > 0 || !is_finite(largest); }
};

/// Works on the elements lane, lane + lanes, ... of a run, each scaled as an update scales it. Run by index; all
/// pointers lead into the engine's memory.
template <FloatingElement T>
struct AddPartialNorms {
    using A = Arithmetic<T>;

    std::span<const T> elements;
    std::uint64_t lanes;
    const double* scale;
    PartialNorms* partials;  ///< one for each lane

    /// Few enough that they are soon added up, and enough to keep a device busy.
    static constexpr std::uint64_t most_lanes = 4096;
    static constexpr std::uint64_t lanes_of(std::uint64_t elements) noexcept {
        return std::clamp(elements / 256, std::uint64_t{1}, most_lanes);
    }

    constexpr void operator()(std::uint64_t lane) const {
        const rules::Factor<A> factor(*scale);
        PartialNorms sum;
        for (std::uint64_t i = lane; i < elements.size(); i += lanes) {
            sum.add(PartialNorms(static_cast<double>(factor * static_cast<A>(elements[i]))));
        }
        partials[lane] = sum;
    }
};
/// Adds the lanes up, in order: of copies, whose elements another rank counts, only those that are not finite. Run
/// once, behind them.
struct FoldPartialNorms {
    std::span<const PartialNorms> partials;
    PartialNorms* into;
    bool copies;

    constexpr void operator()() const {
        for (const PartialNorms& each : partials) {
            if (!copies || each.found_inf()) { into->add(each); }
        }
    }
};

}  // namespace shardkit::detail
