// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/core/element.hpp>
#include <shardkit/core/exact_sum.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/stored_elements.hpp>

// What a norm of gradients adds: runs of elements, the sums of their squares, and what travels between ranks.

namespace shardkit::engine {

/// One run of contiguous elements in a norm: positions [begin, end) of the pass over all elements are `elements`, in
/// order.
template <FloatingElement T>
struct NormPiece {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const T* elements = nullptr;
};

/// The bytes of positions that a warp takes at a time. Each piece begins in a new chunk.
inline constexpr std::size_t norm_chunk_bytes = 2048;

}  // namespace shardkit::engine

namespace shardkit::detail {

/// A NormPiece whose type is that of its run.
struct NormRun {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const void* elements = nullptr;
};

/// Lists the pieces of `runs`, which have elements of one type.
inline List<NormRun> list_norm_pieces(const List<StoredElements>& runs) {
    constexpr std::size_t alignment = 16;
    List<NormRun> table;
    std::uint64_t at = 0;
    for (const StoredElements& run : runs) {
        if (run.empty()) { continue; }
        const std::size_t size = size_of(run.type());
        const std::uint64_t chunk = engine::norm_chunk_bytes / size;
        const std::uint64_t begin = at + reinterpret_cast<std::uintptr_t>(run.data()) % alignment / size;
        table.push_back({begin, begin + run.size(), run.data()});
        at = (begin + run.size() + chunk - 1) / chunk * chunk;
    }
    return table;
}

}  // namespace shardkit::detail

namespace shardkit::engine {

/// Returns the table for Kernels::norm_partial over `runs`, which lie in the engine's memory and are not read. Empty
/// runs are left out. It is made once and copied into the engine's memory by Kernels::copy_in; every step can use it.
/// @post A piece begins, in elements, at a multiple of norm_chunk_bytes plus its address modulo 16 bytes.
///       Pieces are disjoint and in the order of `runs`
template <FloatingElement T>
std::vector<NormPiece<T>> norm_table(std::span<const std::span<const T>> runs) {
    shardkit::detail::List<shardkit::detail::StoredElements> all;
    for (const std::span<const T> run : runs) {
        all.push_back({const_cast<T*>(run.data()), run.size(), element_type_of<T>});
    }
    std::vector<NormPiece<T>> table;
    for (const auto& [begin, end, elements] : shardkit::detail::list_norm_pieces(all)) {
        table.push_back({begin, end, static_cast<const T*>(elements)});
    }
    return table;
}

}  // namespace shardkit::engine

namespace shardkit::detail {

/// The number of global norms whose totals a rank keeps in its engine's memory at a time; later norms reuse them in
/// turn.
inline constexpr std::size_t norm_slots = 16;

/// The numbers (doubles) of global norms: how many a rank keeps and sends.
struct NormNumbers {
    /// The numbers that a norm sends over the world: the sum of squares (an ExactSum), and the count of elements that
    /// are not finite.
    static constexpr std::size_t sent = ExactSum::numbers + 1;
    /// The numbers of one norm's scratch buffer: the scale of the gradients, then what is sent.
    static constexpr std::size_t scratch = 1 + sent;
    /// The numbers of all kept totals, two for each.
    static constexpr std::size_t totals = 2 * norm_slots;
};

/// A global norm before its root, and the finite check.
/// Invariant: `nonfinite` > 0 exactly when some element was infinite or NaN, or is once it is scaled, as an update
/// would take it; how far above zero says nothing more. The overflow of a square alone leaves it as it is.
struct NormTotal {
    double sum_of_squares = 0;
    double nonfinite = 0;

    friend constexpr bool operator==(const NormTotal&, const NormTotal&) noexcept = default;
};

/// One element's term of the squared norm, in arithmetic type A; V as for AdamWUpdate. The gradient is scaled
/// before it is squared, so that a loss scale does not make the square overflow.
template <std::floating_point A>
struct SquaredTerm {
    rules::Factor<A> scale;

    template <class V>
    [[gnu::always_inline]] constexpr V operator()(V gradient) const {
        const V scaled = scale * gradient;
        return scaled * scaled;
    }
};

/// Whether a sum of squares in arithmetic type A holds what it is of. In fp32 squares of elements below 1e-23 are
/// zero and of those above 1.8e19 infinite, long before the elements are: such a sum is made again in double. Above
/// the bound what few thousand squares lose to subnormal numbers is less than their rounding.
template <std::floating_point A>
constexpr bool holds_squares(A squares) noexcept {
    if constexpr (sizeof(A) < sizeof(double)) {
        return is_finite(squares) && squares >= A{0x1p-80F};
    } else {
        return is_finite(squares);
    }
}

/// Adds sums of squares that are near each other faster than ExactSum: of floats in 64 bits, of doubles in 128.
template <std::floating_point A>
class ExactWindow {
    static constexpr bool single = sizeof(A) < sizeof(double);

  public:
    /// How many sums it holds: each is below 2^56 of its units, of doubles below 2^117.
    static constexpr std::size_t most = single ? 256 : 2048;

    /// Takes sums from 1 / root(2^range) to root(2^range) / 2 times the power of two in `sum`, as near to that as A
    /// holds squares.
    constexpr explicit ExactWindow(A sum) noexcept {
        const Bits exponent = std::bit_cast<Bits>(sum) >> fraction_width;
        lowest_ = exponent < least + range / 2     ? least
                  : exponent > largest - range / 2 ? largest - range + 1
                                                   : exponent - range / 2;
    }
    /// Returns whether the sum was in the range and was added.
    [[gnu::always_inline]] constexpr bool add(A sum) noexcept {
        const auto bits = std::bit_cast<Bits>(sum);
        const Bits shift = (bits >> fraction_width) - lowest_;
        if (shift >= range) { return false; }
        constexpr Bits hidden = Bits{1} << fraction_width;
        const std::uint64_t fraction = (bits & (hidden - 1)) | hidden;
        const std::uint64_t moved = fraction << shift;
        low_ += moved;
        if constexpr (!single) { high_ += (fraction >> 1U >> (63 - shift)) + (low_ < moved ? 1 : 0); }
        return true;
    }
    constexpr void add_to(ExactSum& sum) const noexcept { sum.add_integer(lowest_ + unit, low_, high_); }
    /// Calls add(i, amount) as ExactSum::split does.
    template <class Add>
    constexpr void split(const Add& add) const {
        ExactSum::split(lowest_ + unit, low_, high_, 1, add);
    }

  private:
    using Bits = std::conditional_t<single, std::uint32_t, std::uint64_t>;
    static constexpr Bits fraction_width = single ? 23 : 52;
    static constexpr Bits range = single ? 32 : 64;
    /// The exponents of held sums of squares.
    static constexpr Bits least = single ? 127 - 80 : 1;
    static constexpr Bits largest = single ? 254 : 2046;
    /// The position in an ExactSum of the last bit of a fraction with exponent 0: 1074 - 127 - 23 for floats.
    static constexpr std::uint64_t unit = single ? 924 : std::uint64_t{0} - 1;

    Bits lowest_;
    std::uint64_t low_ = 0;
    std::uint64_t high_ = 0;
};

/// What a rank adds to a global norm: the exact sum of its packs' sums, and of its elements that are not finite. It
/// travels as an ExactSum does.
struct NormSum {
    ExactSum squares;
    std::int64_t nonfinite = 0;

    static constexpr std::size_t numbers = ExactSum::numbers + 1;

    constexpr NormSum() noexcept = default;
    constexpr explicit NormSum(const double* travelled) noexcept
        : squares(travelled), nonfinite(static_cast<std::int64_t>(travelled[ExactSum::numbers])) {}
    /// Takes from a sum that travels all but its elements that are not finite.
    static constexpr void keep_nonfinite(double* travelling) noexcept {
        for (std::size_t i = 0; i < ExactSum::digits; ++i) { travelling[i] = 0; }
    }
    constexpr void add_to(double* travelling) const noexcept {
        squares.add_to(travelling);
        travelling[ExactSum::numbers] += static_cast<double>(nonfinite);
    }
    /// The same of a sum whose i-th number is part(i).
    template <class Part>
    static constexpr void add_to(double* travelling, const Part& part) {
        ExactSum::add_to(travelling, part);
        travelling[ExactSum::numbers] += static_cast<double>(part(ExactSum::numbers));
    }
    /// Adds to one of the numbers.
    constexpr void add_part(std::size_t i, std::int64_t amount) noexcept {
        if (i < ExactSum::numbers) {
            squares.add_part(i, amount);
        } else {
            nonfinite += amount;
        }
    }
    constexpr NormTotal total() const& noexcept { return NormSum(*this).total(); }
    constexpr NormTotal total() && noexcept {
        return {static_cast<ExactSum&&>(squares).value(), static_cast<double>(nonfinite)};
    }

    /// Adds sums of packs; calls again(i) for each that A does not hold, which must add it.
    template <std::floating_point A, class Again>
    constexpr void add_packs(std::span<const A> sums, const Again& again) noexcept {
        for (std::size_t at = 0; at < sums.size();) {
            ExactWindow<A> window(sums[at]);
            const std::size_t end = sums.size() - at < window.most ? sums.size() : at + window.most;
            for (; at < end; ++at) {
                if (window.add(sums[at])) { continue; }
                if (holds_squares(sums[at])) {
                    squares.add(static_cast<double>(sums[at]));
                } else {
                    again(at);
                }
            }
            window.add_to(squares);
        }
    }
};

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
