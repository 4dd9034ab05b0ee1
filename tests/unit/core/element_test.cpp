// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include <shardkit/core/element.hpp>

namespace sk = shardkit;

namespace element_test {

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
}

static_assert(std::is_same_v<sk::Arithmetic<double>, double> && std::is_same_v<sk::Arithmetic<float>, float>);
static_assert(std::is_same_v<sk::Arithmetic<sk::bf16>, float> && std::is_same_v<sk::Arithmetic<sk::fp16>, float>,
              "sums over 16-bit elements are made in float");
static_assert(std::is_same_v<sk::Arithmetic<std::uint8_t>, std::uint8_t>);

}  // namespace element_test
