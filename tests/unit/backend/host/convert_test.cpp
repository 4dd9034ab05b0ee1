// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/backend/host/kernels.hpp>

#include "../../core/half_oracle.hpp"
#include "enqueued_kernels.hpp"
#include "kernel_data.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace convert_test {

namespace {

/// A 16-bit type that the vector loops know nothing of: truncates, which no built-in conversion does.
struct Truncated {
    Truncated() = default;
    explicit Truncated(float value)
        : storage(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U)) {}
    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(storage) << 16U); }
    std::uint16_t storage = 0;
};

template <class From, class To>
std::vector<To> converted(const std::vector<From>& from) {
    std::vector<To> to(from.size());
    sk::detail::HostKernels::convert({}, std::span<const From>(from), std::span<To>(to));
    return to;
}

template <class Half>
std::vector<Half> every_pattern() {
    std::vector<Half> patterns(0x10000);
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) { patterns[bits].bits = static_cast<std::uint16_t>(bits); }
    return patterns;
}

template <class Half>
constexpr test::BinaryFormat format_of = std::is_same_v<Half, sk::bf16> ? test::bf16_format : test::fp16_format;

/// Every length up to a few registers, at every offset of the element within a register: `to` is what the
/// scalar conversion gives, and nothing beside it is touched.
template <class From, class To>
void check_lengths_and_offsets() {
    constexpr std::size_t room = 64;
    const auto source = test::random_elements<From>(2 * room, 3);
    const To sentinel = test::rounded<To>(-77);
    std::size_t wrong = 0;
    for (std::size_t offset = 0; offset < 17; ++offset) {
        for (std::size_t length = 0; length < 40; ++length) {
            std::vector<To> target(room, sentinel);
            sk::detail::HostKernels::convert({}, std::span<const From>(source).subspan(offset, length),
                                             std::span<To>(target).subspan(offset, length));
            for (std::size_t i = 0; i < room; ++i) {
                const bool inside = i >= offset && i < offset + length;
                const To expected = inside ? test::rounded<To>(test::widened(source[i])) : sentinel;
                wrong += test::widened(target[i]) != test::widened(expected);
            }
        }
    }
    CHECK(wrong == 0);
}

}  // namespace

}  // namespace convert_test

template <>
struct shardkit::element_traits<convert_test::Truncated> {
    static constexpr ElementType type = ElementType::bf16;
    using Arithmetic = float;
};

namespace convert_test {

TEST_CASE_TEMPLATE("convert: all 65536 patterns widen to the bits that the scalar conversion gives", Half, sk::bf16,
                   sk::fp16) {
    const auto patterns = every_pattern<Half>();
    const auto floats = converted<Half, float>(patterns);
    const auto doubles = converted<Half, double>(patterns);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        const auto expected = static_cast<float>(patterns[i]);
        wrong += std::bit_cast<std::uint32_t>(floats[i]) != std::bit_cast<std::uint32_t>(expected);
        wrong += std::isnan(expected) ? !std::isnan(doubles[i]) : doubles[i] != static_cast<double>(expected);
    }
    CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("convert: floats round to the bits that the scalar conversion gives", Half, sk::bf16, sk::fp16) {
    const auto cases = test::rounding_cases(format_of<Half>);
    const auto halves = converted<float, Half>(cases);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) { wrong += halves[i].bits != Half(cases[i]).bits; }
    CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("convert: any length at any offset, to every type", From, double, float, sk::bf16, sk::fp16,
                   Truncated) {
    check_lengths_and_offsets<From, double>();
    check_lengths_and_offsets<From, float>();
    check_lengths_and_offsets<From, sk::bf16>();
    check_lengths_and_offsets<From, sk::fp16>();
    check_lengths_and_offsets<From, Truncated>();
}

TEST_CASE("convert: another library's element type keeps its own rounding") {
    const std::vector<float> source(11, 0x1.03p0F);
    for (const Truncated element : converted<float, Truncated>(source)) { CHECK(element.storage == 0x3f81); }
    for (const sk::bf16 element : converted<float, sk::bf16>(source)) { CHECK(element.bits == 0x3f82); }
}

TEST_CASE("fill: every element and no other") {
    std::vector<sk::fp16> halves(9, sk::fp16(3.0F));
    sk::detail::HostKernels::fill({}, std::span(halves).subspan(2, 5), sk::fp16(-1.5F));
    for (std::size_t i = 0; i < halves.size(); ++i) {
        CHECK(static_cast<float>(halves[i]) == (i >= 2 && i < 7 ? -1.5F : 3.0F));
    }
    std::vector<std::int32_t> integers(3, 1);
    sk::detail::HostKernels::fill({}, std::span(integers), 4);
    CHECK(integers == std::vector<std::int32_t>{4, 4, 4});
    sk::detail::HostKernels::fill({}, std::span(integers).first(2), 0);
    CHECK(integers == std::vector<std::int32_t>{0, 0, 4});
    std::vector<float> signs(3, 1);
    sk::detail::HostKernels::fill({}, std::span(signs).first(2), -0.0F);
    CHECK(std::signbit(signs[0]));
    CHECK(signs[2] == 1);
}

TEST_CASE_TEMPLATE("accumulate: adds in the sum's arithmetic type and rounds once", Sum, double, float, sk::bf16,
                   sk::fp16) {
    const auto check = [](auto zero) {
        using Addend = decltype(zero);
        using A = sk::Arithmetic<Sum>;
        std::size_t wrong = 0;
        for (std::size_t length = 0; length < 40; ++length) {
            const auto addend = test::random_elements<Addend>(length + 1, 5);
            const auto before = test::random_elements<Sum>(length + 1, 6);
            auto sum = before;
            sk::detail::HostKernels::accumulate({}, std::span<const Addend>(addend).subspan(1),
                                                std::span<Sum>(sum).subspan(1));
            for (std::size_t i = 0; i <= length; ++i) {
                const A added = static_cast<A>(before[i]) + static_cast<A>(test::widened(addend[i]));
                wrong += test::widened(sum[i]) != test::widened(i == 0 ? before[0] : static_cast<Sum>(added));
            }
        }
        CHECK(wrong == 0);
    };
    check(double{});
    check(float{});
    check(sk::bf16{});
    check(sk::fp16{});
}

TEST_CASE("convert, accumulate: sizes that disagree are named") {
    const std::vector<float> source(5);
    std::vector<double> target(3);
    using Kernels = sk::host::AnyKernels;
    CHECK_INVALID_ARGUMENT(Kernels::convert({}, std::span<const float>(source), std::span<double>(target)),
                           "AnyKernels::convert: a span of 3 elements for one of 5, expected as many");
    CHECK_INVALID_ARGUMENT(Kernels::accumulate({}, std::span<const float>(source), std::span<double>(target)),
                           "AnyKernels::accumulate: a span of 3 elements for one of 5, expected as many");
}

}  // namespace convert_test
