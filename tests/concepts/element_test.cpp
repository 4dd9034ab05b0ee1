// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/core/element.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace element_test {

namespace {

/// A toolkit's own bfloat16: the least that a user's storage type needs.
struct ToolkitBf16 {
    std::uint16_t storage = 0;
    ToolkitBf16() = default;
    explicit ToolkitBf16(float value) : storage(shardkit::bf16(value).bits) {}
    explicit operator float() const {
        shardkit::bf16 same;
        same.bits = storage;
        return static_cast<float>(same);
    }
};
struct NoArithmetic {
    std::uint16_t storage = 0;
};
struct NoType {
    std::uint16_t storage = 0;
};
struct WrongSize {
    std::uint32_t storage = 0;
};
struct NotTrivial {
    std::uint16_t storage = 0;
    NotTrivial() = default;
    NotTrivial(const NotTrivial& other) : storage(other.storage) {}
    NotTrivial& operator=(const NotTrivial&) = default;
    ~NotTrivial() = default;
};
struct Whole {
    std::uint16_t storage = 0;
};

}  // namespace

}  // namespace element_test

template <>
struct shardkit::element_traits<element_test::ToolkitBf16> {
    static constexpr ElementType type = ElementType::bf16;
    using Arithmetic = float;
};
template <>
struct shardkit::element_traits<element_test::NoArithmetic> {
    static constexpr ElementType type = ElementType::bf16;
};
template <>
struct shardkit::element_traits<element_test::NoType> {
    using Arithmetic = float;
};
template <>
struct shardkit::element_traits<element_test::WrongSize> : shardkit::element_traits<element_test::ToolkitBf16> {};
template <>
struct shardkit::element_traits<element_test::NotTrivial> : shardkit::element_traits<element_test::ToolkitBf16> {};
template <>
struct shardkit::element_traits<element_test::Whole> {
    static constexpr ElementType type = ElementType::fp16;
    using Arithmetic = std::int32_t;
};

namespace element_test {

namespace {

using namespace shardkit;

static_assert(Element<ToolkitBf16> && FloatingElement<ToolkitBf16>);
static_assert(element_type_of<ToolkitBf16> == ElementType::bf16);
static_assert(!Element<NoArithmetic> && !Element<NoType> && !Element<WrongSize> && !Element<NotTrivial>);
static_assert(!Element<char> && !Element<std::string> && !Element<int*> && !Element<void> && !Element<const float>);
static_assert(Element<Whole> && !FloatingElement<Whole>, "an element whose sums are integers is no parameter");
static_assert(Element<std::int32_t> && !FloatingElement<std::int32_t> && !FloatingElement<std::uint8_t>);
static_assert(FloatingElement<double> && FloatingElement<float> && FloatingElement<bf16> && FloatingElement<fp16>);

}  // namespace

TEST_CASE("Element: a user's storage type works in buffers") {
    HostBuffer<ToolkitBf16> buffer(4);
    buffer.span()[2] = ToolkitBf16(1.5F);
    CHECK(static_cast<float>(buffer.span()[2]) == 1.5F);
    CHECK(static_cast<float>(buffer.span()[3]) == 0.0F);
}

}  // namespace element_test
