// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include <shardkit/core/element.hpp>

namespace sk = shardkit;

namespace {

/// Another library's 16-bit type: explicit conversions, no member named bits.
struct ForeignHalf {
    explicit ForeignHalf(float) {}
    explicit operator float() const { return 0; }
    std::uint16_t storage = 0;
};

/// Claims a size that it does not have.
struct WrongSize {
    std::uint32_t storage;
};

/// Cannot be carried as bytes.
struct NotTrivial {
    NotTrivial(const NotTrivial&) {}
    std::uint16_t storage = 0;
};

struct Unknown {};

}  // namespace

template <>
struct shardkit::element_traits<ForeignHalf> {
    static constexpr ElementType type = ElementType::bf16;
    using Arithmetic = float;
};
template <>
struct shardkit::element_traits<WrongSize> {
    static constexpr ElementType type = ElementType::bf16;
    using Arithmetic = float;
};
template <>
struct shardkit::element_traits<NotTrivial> {
    [[maybe_unused]] static constexpr ElementType type = ElementType::bf16;
    using Arithmetic = float;
};

TEST_CASE("ElementType: names and sizes") {
    struct Row {
        sk::ElementType type;
        const char* name;
        std::size_t size;
    };
    const Row rows[] = {{sk::ElementType::fp64, "fp64", 8},     {sk::ElementType::fp32, "fp32", 4},
                        {sk::ElementType::bf16, "bf16", 2},     {sk::ElementType::fp16, "fp16", 2},
                        {sk::ElementType::int64, "int64", 8},   {sk::ElementType::int32, "int32", 4},
                        {sk::ElementType::uint64, "uint64", 8}, {sk::ElementType::uint32, "uint32", 4},
                        {sk::ElementType::uint8, "uint8", 1}};
    for (const Row& row : rows) {
        CHECK(std::string(name(row.type)) == row.name);
        CHECK(size_of(row.type) == row.size);
    }
}

TEST_CASE("element_traits: each C++ type travels as its own element type") {
    CHECK(sk::element_type_of<double> == sk::ElementType::fp64);
    CHECK(sk::element_type_of<float> == sk::ElementType::fp32);
    CHECK(sk::element_type_of<sk::bf16> == sk::ElementType::bf16);
    CHECK(sk::element_type_of<sk::fp16> == sk::ElementType::fp16);
    CHECK(sk::element_type_of<std::int64_t> == sk::ElementType::int64);
    CHECK(sk::element_type_of<std::int32_t> == sk::ElementType::int32);
    CHECK(sk::element_type_of<std::uint64_t> == sk::ElementType::uint64);
    CHECK(sk::element_type_of<std::uint32_t> == sk::ElementType::uint32);
    CHECK(sk::element_type_of<std::uint8_t> == sk::ElementType::uint8);
    CHECK(sk::element_type_of<ForeignHalf> == sk::ElementType::bf16);
}

static_assert(std::is_same_v<sk::Arithmetic<double>, double> && std::is_same_v<sk::Arithmetic<float>, float>);
static_assert(std::is_same_v<sk::Arithmetic<sk::bf16>, float> && std::is_same_v<sk::Arithmetic<sk::fp16>, float>,
              "sums over 16-bit elements are made in float");
static_assert(std::is_same_v<sk::Arithmetic<std::uint8_t>, std::uint8_t>);

static_assert(sk::FloatingElement<double> && sk::FloatingElement<float> && sk::FloatingElement<sk::bf16> &&
              sk::FloatingElement<sk::fp16> && sk::FloatingElement<ForeignHalf>);
static_assert(sk::Element<std::int32_t> && !sk::FloatingElement<std::int32_t>,
              "integers travel, but are no parameters");
static_assert(!sk::Element<Unknown>, "no element_traits");
static_assert(!sk::Element<WrongSize>, "the size disagrees with the element type");
static_assert(!sk::Element<NotTrivial>, "not trivially copyable");
static_assert(!sk::Element<float*> && !sk::Element<const float>);
