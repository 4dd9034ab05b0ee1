// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <shardkit/core/element.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/step/loss_scale_state.hpp>

/// A layer of small_trainer and step_trainer: its parameters, first values and kernels. Gradients depend on the
/// parameters, on what the forward pass saw and on the rank.
namespace trainer_layer {

namespace sk = shardkit;

inline constexpr std::size_t weight_size = 37;
inline constexpr std::size_t bias_size = 5;

template <class T>
struct Weight : sk::Param<"weight", T, weight_size> {};
template <class T>
struct Bias : sk::Param<"bias", T, bias_size> {};

/// For Sharded::initialize.
inline double first_value(std::string_view path, std::string_view name, std::uint64_t i) {
    return static_cast<double>((i * 7 + static_cast<unsigned char>(path.back()) + name.size()) % 13) / 8 - 0.75;
}

inline float slope(std::size_t rank, std::size_t microbatch, std::size_t layer) {
    return static_cast<float>(1 + (rank * 3 + microbatch * 5 + layer) % 7) / 16;
}

template <class T>
struct Forward {
    std::span<const T> values;
    T* activation;

    constexpr void operator()() const {
        for (std::size_t i = 0; i < values.size(); ++i) { activation[i] = values[i]; }
    }
};

inline constexpr double never = std::numeric_limits<double>::infinity();

template <class T>
struct Backward {
    std::span<const T> values;
    const T* activation;
    T* gradient;
    float slope;
    const sk::LossScaleState* loss_scale;  ///< null without one
    double overflows_at;                   ///< the loss scale from which on an element is infinite

    constexpr void operator()() const {
        using A = sk::Arithmetic<T>;
        const double scale = loss_scale == nullptr ? 1 : loss_scale->value();
        for (std::size_t i = 0; i < values.size(); ++i) {
            const A value = static_cast<A>(values[i]) + static_cast<A>(activation[i]) / 2;
            const A addend = (value * static_cast<A>(slope) + static_cast<A>(i % 3)) * static_cast<A>(scale);
            gradient[i] = static_cast<T>(static_cast<A>(gradient[i]) + addend);
        }
        if (scale >= overflows_at) {
            gradient[values.size() / 2] = static_cast<T>(std::numeric_limits<A>::infinity());
        }
    }
};

}  // namespace trainer_layer
