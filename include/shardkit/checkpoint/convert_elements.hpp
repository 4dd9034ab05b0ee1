// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Returns the type under which files store elements.
constexpr safetensors::DType dtype_of(ElementType type) noexcept {
    using enum safetensors::DType;
    constexpr std::array types{f64, f32, bf16, f16, i64, i32, u64, u32, u8};
    return types[static_cast<std::size_t>(type)];
}
static_assert(dtype_of(ElementType::fp16) == safetensors::DType::f16);
static_assert(dtype_of(ElementType::uint8) == safetensors::DType::u8);

/// Returns whether values of type `to` can be made from elements of this type. Codes are not numbers of their own,
/// and are read as they are.
constexpr bool is_read(safetensors::DType type, ElementType to) noexcept {
    using enum safetensors::DType;
    if (to == ElementType::uint8) { return type == u8; }
    return type == f64 || type == f32 || type == bf16 || type == f16;
}
constexpr std::string_view expected_types(ElementType to) noexcept {
    return to == ElementType::uint8 ? "U8: codes of 8 bits, or opaque bytes" : "F64, F32, BF16 or F16";
}
constexpr bool same_elements(safetensors::DType from, ElementType to) noexcept { return from == dtype_of(to); }

/// Converts elements of a file to elements in memory. Widening is exact; narrowing rounds to nearest, ties to even,
/// and from F64 to 16 bits through float.
class ElementConverter {
  public:
    /// @pre is_read(from, to)
    ElementConverter(safetensors::DType from, ElementType to) noexcept : convert_(choose(from, to)) {}
    /// Converts `count` elements; neither side needs alignment. @returns the number of converted elements, which is
    /// less than `count` where a finite element is beyond the range of the target type
    [[nodiscard]] std::size_t operator()(const std::byte* from, std::byte* to, std::size_t count) const {
        return convert_(from, to, count);
    }

  private:
    using Convert = std::size_t (*)(const std::byte* from, std::byte* to, std::size_t count);

    /// Whether every finite element of From is representable in To.
    template <class From, class To>
    static constexpr bool widens = std::is_same_v<To, double> || (std::is_same_v<To, float> && sizeof(From) == 2);

    template <class From, class To>
    static std::size_t convert(const std::byte* from, std::byte* to, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            From given{};
            std::memcpy(static_cast<void*>(&given), from + i * sizeof given, sizeof given);
            const auto number = static_cast<Arithmetic<From>>(given);
            const auto made = static_cast<To>(static_cast<Arithmetic<To>>(number));
            if constexpr (!widens<From, To>) {
                if (is_finite(number) && !is_finite(static_cast<Arithmetic<To>>(made))) { return i; }
            }
            std::memcpy(to + i * sizeof made, static_cast<const void*>(&made), sizeof made);
        }
        return count;
    }
    template <class From>
    static Convert choose(ElementType to) noexcept {
        return to == ElementType::fp64   ? convert<From, double>
               : to == ElementType::bf16 ? convert<From, bf16>
               : to == ElementType::fp16 ? convert<From, fp16>
                                         : convert<From, float>;
    }
    template <std::size_t Size>
    static std::size_t copy(const std::byte* from, std::byte* to, std::size_t count) {
        std::memcpy(to, from, count * Size);
        return count;
    }
    static Convert choose(safetensors::DType from, ElementType to) noexcept {
        if (same_elements(from, to)) {
            return to == ElementType::fp64   ? copy<8>
                   : to == ElementType::fp32 ? copy<4>
                   : size_of(to) == 2        ? copy<2>
                                             : copy<1>;
        }
        return from == safetensors::DType::f64    ? choose<double>(to)
               : from == safetensors::DType::bf16 ? choose<bf16>(to)
               : from == safetensors::DType::f16  ? choose<fp16>(to)
                                                  : choose<float>(to);
    }

    Convert convert_;
};

/// Returns the error text for a tensor with such an element.
inline std::string out_of_range(std::string_view tensor, ElementType type) {
    return concat("tensor '", tensor, "': a finite element is beyond the range of ", name(type));
}

}  // namespace shardkit::detail
