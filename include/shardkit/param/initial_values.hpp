// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::detail {

/// Returns the natural logarithm of a positive normal number, to about one unit in the last place.
constexpr double logarithm(double x) noexcept {
    // x = 2^exponent m with m within sqrt(2) of 1; ln m = 2 artanh((m - 1) / (m + 1)), by its series.
    const auto bits = std::bit_cast<std::uint64_t>(x);
    auto exponent = static_cast<std::int64_t>(bits >> 52U) - 1023;
    double m = std::bit_cast<double>((bits & 0x000f'ffff'ffff'ffffU) | 0x3ff0'0000'0000'0000U);
    if (m > 1.4142135623730951) {
        m /= 2;
        ++exponent;
    }
    const double s = (m - 1) / (m + 1);
    const double z = s * s;
    constexpr double terms[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    double series = 0;
    for (const double term : terms) { series = series * z + term; }
    return static_cast<double>(exponent) * 0.6931471805599453 + 2 * s * series;
}
/// Returns the cosine of 2 pi turns, of turns in [0, 1).
constexpr double cosine_of_turns(double turns) noexcept {
    const auto quarter = static_cast<int>(8 * turns + 1) / 2;  // the nearest one
    const double angle = (turns - quarter * 0.25) * 6.283185307179586;
    const double z = angle * angle;
    // The cosine's series and the sine's, of at most an eighth of a turn.
    constexpr double even_terms[] = {1.0 / 240, 1.0 / 182, 1.0 / 132, 1.0 / 90,
                                     1.0 / 56,  1.0 / 30,  1.0 / 12,  1.0 / 2};
    constexpr double odd_terms[] = {1.0 / 272, 1.0 / 210, 1.0 / 156, 1.0 / 110,
                                    1.0 / 72,  1.0 / 42,  1.0 / 20,  1.0 / 6};
    double even = 0;
    double odd = 0;
    for (const double term : even_terms) { even = (even + 1) * -z * term; }
    for (const double term : odd_terms) { odd = (odd + 1) * -z * term; }
    const double cosine = 1 + even;
    const double sine = angle * (1 + odd);
    const double value = quarter % 2 == 0 ? cosine : sine;
    return quarter % 4 == 1 || quarter % 4 == 2 ? -value : value;
}

/// F gives each parameter a function of the index, which the engine's kernels can call.
template <class F>
concept GivesFunctions = !std::invocable<F&, std::string_view, std::string_view, std::uint64_t> &&
                         requires(F & values, std::string_view text, std::uint64_t index) {
    { values(text, text)(index) } -> std::convertible_to<double>;
};
/// Returns what `values` gives the parameter.
template <GivesFunctions F>
auto function_of(F& values, std::string_view path, std::string_view name) {
    const auto its = values(path, name);
    if constexpr (std::invocable<decltype(its), std::string_view, std::string_view>) {
        return its(path, name);
    } else {
        return its;
    }
}

}  // namespace shardkit::detail

namespace shardkit {

/// Gives the elements of a parameter their first values, by the engine's own kernels: constant, uniform or normal.
///     model.initialize([](std::string_view, std::string_view name) {
///         return name == "gain" ? InitialValues::constant(1) : InitialValues::normal(0, 0.02, seed);
///     });
/// An element's value depends on the seed, the group's path, the parameter's name and its index in the whole
/// parameter alone: it is the same under every policy and on every mesh. Engines whose compilers contract
/// products and sums otherwise may differ in the last bit of a double.
/// Source:  Philox4x32-10, see core/stochastic_rounding.hpp; Box and Muller, A Note on the Generation of
///          Random Normal Deviates, 1958
class InitialValues {
  public:
    /// Every element is `value`.
    static constexpr InitialValues constant(double value) noexcept { return {Kind::constant, value, 0, 0}; }
    /// Spreads elements evenly over [low, high).
    /// @throws std::invalid_argument unless both are finite and low is at most high
    static InitialValues uniform(double low, double high, std::uint64_t seed,
                                 SourceLocation where = SourceLocation::current()) {
        if (!detail::is_finite(high - low) || low > high) {
            throw_invalid_argument(where, "InitialValues::uniform from ", detail::number_text(low), " to ",
                                   detail::number_text(high), ", expected finite bounds in order");
        }
        return {Kind::uniform, low, high - low, seed};
    }
    /// Draws elements from a normal distribution; none is further than 8.6 deviations from the mean.
    /// @throws std::invalid_argument unless both are finite and the deviation is not negative
    static InitialValues normal(double average, double deviation, std::uint64_t seed,
                                SourceLocation where = SourceLocation::current()) {
        if (!detail::is_finite(average) || !detail::is_finite(deviation) || deviation < 0) {
            throw_invalid_argument(where, "InitialValues::normal with mean ", detail::number_text(average),
                                   " and deviation ", detail::number_text(deviation),
                                   ", expected finite ones, the deviation not negative");
        }
        return {Kind::normal, average, deviation, seed};
    }

    /// Returns those of one parameter.
    constexpr InitialValues operator()(std::string_view path, std::string_view name) const noexcept {
        InitialValues its = *this;
        detail::Fnv key{seed_};
        key.add(path);
        key.add(name);
        its.key_ = key.hash;
        return its;
    }
    /// Returns the value of element `index` of the whole parameter.
    constexpr double operator()(std::uint64_t index) const noexcept {
        if (kind_ == Kind::constant) { return first_; }
        using detail::high;
        using detail::low;
        const auto words = rules::philox({low(index), high(index), low(seed_), high(seed_)}, {low(key_), high(key_)});
        const double one = fraction(words[0], words[1]);
        if (kind_ == Kind::uniform) { return first_ + second_ * one; }
        const double other = fraction(words[2], words[3]);
        const double radius = rules::square_root(-2 * detail::logarithm(1 - one));
        return first_ + second_ * radius * detail::cosine_of_turns(other);
    }

  private:
    enum class Kind : std::uint8_t { constant, uniform, normal };

    constexpr InitialValues(Kind kind, double first, double second, std::uint64_t seed) noexcept
        : kind_(kind), first_(first), second_(second), seed_(seed) {}

    /// A multiple of 2^-53 in [0, 1).
    static constexpr double fraction(std::uint32_t upper, std::uint32_t lower) noexcept {
        const std::uint64_t word = std::uint64_t{upper} << 32U | lower;
        return static_cast<double>(word >> 11U) * 0x1p-53;
    }

    Kind kind_;
    double first_;
    double second_;
    std::uint64_t seed_;
    std::uint64_t key_ = 0;
};

}  // namespace shardkit
