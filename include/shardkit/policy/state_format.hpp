// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <shardkit/core/block8.hpp>

namespace shardkit {

/// How an optimizer stores its states between steps. An update computes in the master's arithmetic type in any case.
enum class StateFormat : std::uint8_t {
    full,   ///< in the master's arithmetic type
    bf16,   ///< 2 bytes for each element, rounded stochastically: see detail::StateDraws
    block8  ///< 1 byte for each element and one fp32 scale for each 32 of them: see Block8
};

namespace detail {
/// How the states of a rule are stored: see kernels/state_storage.hpp. Bit i of `Squares`: state i has squares.
template <StateFormat Format, std::uint32_t Squares = 0>
struct StateStorage;
using FullStates = StateStorage<StateFormat::full>;
/// Returns the bytes of the scales of `elements` values of one state, which have a buffer of their own.
constexpr std::size_t scale_bytes(StateFormat format, std::size_t elements) noexcept {
    return format == StateFormat::block8 ? Block8::blocks(elements) * sizeof(float) : 0;
}
}  // namespace detail

/// The word by which an optimizer is made with its states in a format:
///     AdamW optimizer{model, states_in<StateFormat::bf16>, {.learning_rate = 3e-4}};
template <StateFormat Format>
struct StatesIn {
    /// Of `states_in` alone: an empty list in an optimizer's place for options is no word.
    constexpr explicit StatesIn(StateFormat /*format*/) noexcept {}
};
/// Says in which format an optimizer keeps its states, see StatesIn.
template <StateFormat Format>
inline constexpr StatesIn<Format> states_in{Format};

/// Returns the bytes of `elements` values of one state; `arithmetic`: the bytes of one number of the arithmetic type.
constexpr std::size_t state_bytes(StateFormat format, std::size_t elements, std::size_t arithmetic) noexcept {
    if (format == StateFormat::bf16) { return 2 * elements; }
    if (format == StateFormat::block8) { return elements + detail::scale_bytes(format, elements); }
    return arithmetic * elements;
}

/// The states that optimizers keep: their number, AdamW 2, Lion and SGD with momentum 1, plain SGD 0, and how they
/// are stored. A number alone stands for full ones.
struct OptimizerStates {
    std::array<std::size_t, 3> counts{};  ///< by StateFormat

    // NOLINTNEXTLINE(google-explicit-constructor): a number alone is what most plans say
    constexpr OptimizerStates(std::size_t number, StateFormat stored_as = StateFormat::full) noexcept {
        counts[static_cast<std::size_t>(stored_as)] = number;
    }
    /// Adds those of another optimizer of the same elements.
    constexpr OptimizerStates& operator+=(const OptimizerStates& others) noexcept {
        for (std::size_t format = 0; format < counts.size(); ++format) { counts[format] += others.counts[format]; }
        return *this;
    }
    /// Returns their bytes of so many elements; `arithmetic`: the bytes of one number of the arithmetic type.
    constexpr std::size_t bytes(std::size_t elements, std::size_t arithmetic) const noexcept {
        std::size_t total = 0;
        for (std::size_t format = 0; format < counts.size(); ++format) {
            total += counts[format] * state_bytes(static_cast<StateFormat>(format), elements, arithmetic);
        }
        return total;
    }
    friend constexpr bool operator==(const OptimizerStates&, const OptimizerStates&) noexcept = default;
};

}  // namespace shardkit
