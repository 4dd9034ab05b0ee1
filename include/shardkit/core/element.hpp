// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

namespace shardkit {

/// The element types that ranks can exchange, as a run-time value.
enum class ElementType : std::uint8_t { fp64, fp32, bf16, fp16, int64, int32, uint64, uint32, uint8 };

/// Returns the element type's name in errors and logs.
constexpr std::string_view name(ElementType type) noexcept {
    constexpr std::string_view names[] = {"fp64",  "fp32",   "bf16",   "fp16", "int64",
                                          "int32", "uint64", "uint32", "uint8"};
    return names[static_cast<std::size_t>(type)];
}

namespace detail {
inline constexpr std::uint8_t element_bytes[] = {8, 4, 2, 2, 8, 4, 8, 4, 1};
}  // namespace detail
/// Returns the bytes of one element.
constexpr std::size_t size_of(ElementType type) noexcept {
    return detail::element_bytes[static_cast<std::size_t>(type)];
}

/// Describes an element type to the library (a customisation point). Specialise it for another storage type, for
/// example a toolkit's own bfloat16. Members: `type` (the ElementType that represents it) and `Arithmetic` (the type
/// of its sums, to and from which it converts explicitly). Where elements of one byte are codes that stand for a
/// multiple of a number, `scale` is that number: checkpoints have it beside the codes, and refuse codes with another.
template <class T>
struct element_traits {};

namespace detail {
template <ElementType Type, class A>
struct ElementTraits {
    static constexpr ElementType type = Type;
    using Arithmetic = A;
};
}  // namespace detail

template <>
struct element_traits<double> : detail::ElementTraits<ElementType::fp64, double> {};
template <>
struct element_traits<float> : detail::ElementTraits<ElementType::fp32, float> {};
template <>
struct element_traits<bf16> : detail::ElementTraits<ElementType::bf16, float> {};
template <>
struct element_traits<fp16> : detail::ElementTraits<ElementType::fp16, float> {};
template <>
struct element_traits<std::int64_t> : detail::ElementTraits<ElementType::int64, std::int64_t> {};
template <>
struct element_traits<std::int32_t> : detail::ElementTraits<ElementType::int32, std::int32_t> {};
template <>
struct element_traits<std::uint64_t> : detail::ElementTraits<ElementType::uint64, std::uint64_t> {};
template <>
struct element_traits<std::uint32_t> : detail::ElementTraits<ElementType::uint32, std::uint32_t> {};
template <>
struct element_traits<std::uint8_t> : detail::ElementTraits<ElementType::uint8, std::uint8_t> {};

/// Bytes that the library moves and stores, and whose meaning it does not know: the elements of a group that is
/// frozen whole, as of quantised weights under adapters. `Arithmetic` is there for code that such a group never runs.
template <>
struct element_traits<std::byte> : detail::ElementTraits<ElementType::uint8, float> {};

/// The type in which sums over elements of type T are made: float for 16-bit types, T otherwise.
template <class T>
using Arithmetic = typename element_traits<T>::Arithmetic;

/// A collective can carry elements of type T.
template <class T>
concept Element = std::is_trivially_copyable_v<T> && requires {
    { element_traits<T>::type } -> std::convertible_to<ElementType>;
    typename element_traits<T>::Arithmetic;
} && sizeof(T) == size_of(element_traits<T>::type);

/// A parameter can be made of elements of type T: fp64, fp32, bf16, fp16, std::byte, and types of your own.
template <class T>
concept FloatingElement = Element<T> && std::floating_point<Arithmetic<T>>;

namespace detail {
/// Whether elements of type T have no value that the library knows.
template <class T>
inline constexpr bool is_opaque = std::is_same_v<T, std::byte>;
/// The number of which the codes of type T are multiples; 0 for a type without.
template <class T>
inline constexpr double scale_of = [] {
    if constexpr (requires { element_traits<T>::scale; }) {
        static_assert(sizeof(T) == 1 && element_traits<T>::scale > 0,
                      "element_traits: a scale is a number above zero, and its codes have one byte");
        return static_cast<double>(element_traits<T>::scale);
    } else {
        return 0.0;
    }
}();

/// Whether every value of T is unchanged after a conversion to Wide and back.
template <FloatingElement Wide, FloatingElement T>
inline constexpr bool holds_exactly = std::same_as<Wide, T> ||
                                      (std::same_as<Wide, Arithmetic<Wide>> && sizeof(Arithmetic<T>) <= sizeof(Wide));

/// Returns a number as an element, rounded to T's arithmetic type and then to T.
template <FloatingElement T>
constexpr T to_element(double number) noexcept {
    return static_cast<T>(static_cast<Arithmetic<T>>(number));
}
/// Returns the same by way of the master's type, whose rounding comes first.
template <FloatingElement T, FloatingElement Master>
constexpr T to_element_by(double number) noexcept {
    return to_element<T>(static_cast<double>(static_cast<Arithmetic<Master>>(to_element<Master>(number))));
}

/// Calls f with an unsigned integer of that many bytes, as which elements are moved and compared whatever they mean.
template <class F>
void with_word(std::size_t bytes, const F& f) {
    switch (bytes) {
        case 1:
            return f(std::uint8_t{});
        case 2:
            return f(std::uint16_t{});
        case 4:
            return f(std::uint32_t{});
        default:
            return f(std::uint64_t{});
    }
}
}  // namespace detail

/// The element type of T as a run-time value.
template <Element T>
inline constexpr ElementType element_type_of = element_traits<T>::type;

}  // namespace shardkit
