// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <shardkit/backend/host/lanes.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::host {

namespace detail {

template <std::size_t Count>
using Words = Vector<std::uint32_t, Count>;

template <class To, class From>
To reinterpret(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

/// All bits of a lane where `magnitude` > `limit`, both below 2^31: the signed comparison is one instruction.
template <std::size_t Count>
Words<Count> above(Words<Count> magnitude, std::int32_t limit) {
    return reinterpret<Words<Count>>(reinterpret<Vector<std::int32_t, Count>>(magnitude) > limit);
}

/// `mask` has all bits of a lane set or none.
template <class W>
W select(W mask, W yes, W no) {
    return (mask & yes) | (~mask & no);
}

// The same integer arithmetic as the scalar conversions of bf16 and fp16, without their branches.

template <std::size_t Count>
Words<Count> widen_bits(bf16, Words<Count> half) {
    return half << 16;
}

template <std::size_t Count>
Words<Count> round_bits(bf16, Words<Count> word) {
    const Words<Count> magnitude = word & 0x7fffffff;
    const Words<Count> rounded = word + 0x7fff + ((word >> 16) & 1);
    return select<Words<Count>>(above<Count>(magnitude, 0x7f800000), word | 0x00400000, rounded) >> 16;
}

template <std::size_t Count>
Words<Count> widen_bits(fp16, Words<Count> half) {
    const Words<Count> magnitude = (half & 0x7fff) << 13;
    const Words<Count> sign = (half & 0x8000) << 16;
    const auto finite = reinterpret<Words<Count>>(reinterpret<Vector<float, Count>>(magnitude) * 0x1p112F);
    return sign | select<Words<Count>>(above<Count>(magnitude, 0x0f7fffff), magnitude | 0x7f800000, finite);
}

template <std::size_t Count>
Words<Count> round_bits(fp16, Words<Count> word) {
    using W = Words<Count>;
    const W magnitude = word & 0x7fffffff;
    const W normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    const W subnormal = reinterpret<W>(reinterpret<Vector<float, Count>>(magnitude) + 0.5F) - 0x3f000000;
    W half = select<W>(above<Count>(magnitude, 0x387fffff), normal, subnormal);
    half = select<W>(above<Count>(magnitude, 0x477fefff), (W{} + 0x7c00), half);
    half = select<W>(above<Count>(magnitude, 0x7f800000), (W{} + 0x7e00), half);
    return half | ((word >> 16) & 0x8000);
}

template <class T>
concept Half = std::same_as<T, bf16> || std::same_as<T, fp16>;

}  // namespace detail

/// Lanes<A>::count elements from `source`, converted to A; `source` needs only T's own alignment.
template <std::floating_point A, FloatingElement T>
Lanes<A> load(const T* source) {
    constexpr std::size_t count = Lanes<A>::count;
    if constexpr (std::floating_point<T>) {
        Vector<T, count> values;
        std::memcpy(&values, source, sizeof values);
        return {__builtin_convertvector(values, Vector<A, count>)};
    } else if constexpr (detail::Half<T>) {
        Vector<std::uint16_t, count> bits;
        std::memcpy(&bits, source, sizeof bits);
        const auto word = detail::widen_bits<count>(T{}, __builtin_convertvector(bits, detail::Words<count>));
        return {__builtin_convertvector(detail::reinterpret<Vector<float, count>>(word), Vector<A, count>)};
    } else {
        Lanes<A> lanes;
        for (std::size_t i = 0; i < count; ++i) {
            lanes.values[i] = static_cast<A>(static_cast<Arithmetic<T>>(source[i]));
        }
        return lanes;
    }
}

/// Rounds to T (to nearest, ties to even; 16-bit types by way of float) and writes Lanes<A>::count elements.
template <FloatingElement T, std::floating_point A>
void store(Lanes<A> lanes, T* target) {
    constexpr std::size_t count = Lanes<A>::count;
    if constexpr (std::floating_point<T>) {
        const auto values = __builtin_convertvector(lanes.values, Vector<T, count>);
        std::memcpy(static_cast<void*>(target), &values, sizeof values);
    } else if constexpr (detail::Half<T>) {
        const auto values = __builtin_convertvector(lanes.values, Vector<float, count>);
        const auto half = detail::round_bits<count>(T{}, detail::reinterpret<detail::Words<count>>(values));
        const auto bits = __builtin_convertvector(half, Vector<std::uint16_t, count>);
        std::memcpy(static_cast<void*>(target), &bits, sizeof bits);
    } else {
        for (std::size_t i = 0; i < count; ++i) { target[i] = T(static_cast<Arithmetic<T>>(lanes.values[i])); }
    }
}

/// The value that `lanes` has once stored as T.
template <FloatingElement T, std::floating_point A>
Lanes<A> stored_as(Lanes<A> lanes) {
    if constexpr (std::same_as<T, A>) {
        return lanes;
    } else {
        T elements[Lanes<A>::count];
        store(lanes, elements);
        return load<A>(elements);
    }
}

}  // namespace shardkit::host
