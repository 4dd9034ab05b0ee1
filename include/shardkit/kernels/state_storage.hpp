// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/policy/state_format.hpp>

// How an optimizer's states lie in memory, and what decides their rounding.

namespace shardkit::rules {

/// A state's codes and scales: element i has code i and scale i / Block8::block.
struct Block8Span {
    std::span<std::uint8_t> codes;
    std::span<float> scales;

    constexpr std::size_t size() const noexcept { return codes.size(); }
    constexpr bool empty() const noexcept { return codes.empty(); }
    /// Returns the elements from `begin` on, which must begin a block.
    constexpr Block8Span subspan(std::size_t begin, std::size_t count) const {
        return {codes.subspan(begin, count), scales.subspan(begin / Block8::block, Block8::blocks(count))};
    }
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {

/// Draws 32 random bits for each element, which depend only on (seed, step, element, pair): two states share them,
/// the lower half for the even one, and `pair` counts those pairs. A draw takes 8 instructions on short vectors,
/// where a block of draws takes some 60; it decides which of two neighbours a number is stored as, and nothing else.
/// Source:  the mixer lowbias32 of Wellons' hash-prospector, keyed by itself
class StateDraws {
  public:
    constexpr StateDraws() noexcept = default;
    constexpr StateDraws(std::uint64_t seed, std::uint64_t step, std::uint32_t pair) noexcept
        : key_(mixed(low(seed) ^ mixed(high(seed) ^ low(step) ^ (high(step) + pair) * spread))) {}

    constexpr std::uint32_t operator()(std::uint64_t element) const noexcept {
        return draw(low(element), key_of(element));
    }
    /// The key of the elements that have these upper 32 bits.
    constexpr std::uint32_t key_of(std::uint64_t element) const noexcept { return key_ ^ high(element) * spread; }
    /// Returns what is drawn for elements whose numbers have these lower halves. W: a word, or a short vector of
    /// them.
    template <class W>
    [[gnu::always_inline]] static constexpr W draw(const W& elements, std::uint32_t key) noexcept {
        return mixed(W(elements ^ key));
    }
    /// Returns, in each word, `bits` bits for state number `state`, of those drawn for its pair. Of more than 16, a
    /// pair's states share the lowest ones of one with the highest of the other.
    template <class W>
    [[gnu::always_inline]] static constexpr W of_state(const W& drawn, std::size_t state,
                                                       std::uint32_t bits) noexcept {
        return state % 2 != 0 ? W(drawn >> (32 - bits)) : W(drawn & ((1U << bits) - 1));
    }

  private:
    static constexpr std::uint32_t spread = 0x9e37'79b9U;  // odd: numbers stay different
    template <class W>
    [[gnu::always_inline]] static constexpr W mixed(W x) noexcept {
        x = (x ^ x >> 16U) * 0x7feb'352dU;
        x = (x ^ x >> 15U) * 0x846c'a68bU;
        return x ^ x >> 16U;
    }

    std::uint32_t key_ = 0;
};

/// Says how the states of a rule lie in memory. Bit s of `Squares`: state number s is a square.
template <StateFormat Format, std::uint32_t Squares>
struct StateStorage {
    static constexpr StateFormat format = Format;
    static constexpr bool is_square(std::size_t state) noexcept { return (Squares >> state & 1U) != 0; }
    template <class A>
    using Span = std::conditional_t<Format == StateFormat::block8, rules::Block8Span,
                                    std::span<std::conditional_t<Format == StateFormat::bf16, bf16, A>>>;
};
/// One state of a rank's elements in memory, for updates with arithmetic type A.
template <class Storage, class A>
using StateSpan = typename Storage::template Span<A>;

/// The same where who knows the format and the number of elements takes it `as` what it is.
struct AnyStateSpan {
    std::byte* elements = nullptr;
    float* scales = nullptr;  ///< of blocks of 8 bits

    template <class Storage, class A>
    StateSpan<Storage, A> as(std::size_t count) const noexcept {
        if constexpr (Storage::format == StateFormat::block8) {
            return {{reinterpret_cast<std::uint8_t*>(elements), count}, {scales, Block8::blocks(count)}};
        } else {
            return {reinterpret_cast<typename StateSpan<Storage, A>::element_type*>(elements), count};
        }
    }
};

/// Returns the type of a state's elements as it is stored, of updates in `arithmetic`; codes of blocks are bytes.
constexpr ElementType stored_type(StateFormat format, ElementType arithmetic) noexcept {
    return format == StateFormat::full   ? arithmetic
           : format == StateFormat::bf16 ? ElementType::bf16
                                         : ElementType::uint8;
}

/// How a rule's states lie in memory: in full unless it has a StateStorage.
template <class Rule>
struct StorageOf {
    using type = FullStates;
};
template <class Rule>
requires requires { typename Rule::StateStorage; }
struct StorageOf<Rule> {
    using type = typename Rule::StateStorage;
};

/// Which states of a rule are squares, as StateStorage counts them: those of its `squares`, an array of bool.
template <class Rule>
constexpr std::uint32_t squares_of() {
    std::uint32_t squares = 0;
    if constexpr (requires { Rule::squares; }) {
        for (std::size_t s = 0; s < Rule::squares.size(); ++s) { squares |= Rule::squares[s] ? 1U << s : 0U; }
    }
    return squares;
}

}  // namespace detail

}  // namespace shardkit

namespace shardkit::rules {

/// A rule whose states are stored in another format; an OptimizerRule like `Rule`, whose update it makes.
template <class Rule, StateFormat Format>
struct StoredRule : Rule {
    using StateStorage = detail::StateStorage<Format, detail::squares_of<Rule>()>;
};

/// A rule with its states in a format: `Rule` itself for full ones.
template <class Rule, StateFormat Format>
using RuleIn = std::conditional_t<Format == StateFormat::full, Rule, StoredRule<Rule, Format>>;

}  // namespace shardkit::rules
