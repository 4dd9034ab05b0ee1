// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/memory/host_buffer.hpp>

#include "../thrown_message.hpp"

namespace host_buffer_test {

namespace {

using namespace shardkit;

static_assert(!std::is_copy_constructible_v<HostBuffer<float>> && !std::is_copy_assignable_v<HostBuffer<float>>);
static_assert(std::is_nothrow_move_constructible_v<HostBuffer<float>>);
static_assert(std::is_nothrow_move_assignable_v<HostBuffer<float>>);

template <class T>
bool zeroed(const HostBuffer<T>& buffer) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(buffer.data());
    return std::all_of(bytes, bytes + buffer.size() * sizeof(T), [](unsigned char b) { return b == 0; });
}

}  // namespace

TEST_CASE_TEMPLATE("HostBuffer: aligned to 128 bytes and zeroed", T, double, float, bf16, fp16, std::uint8_t) {
    // Dirty memory first, so that zeros are not an accident.
    for (int round = 0; round < 3; ++round) {
        std::vector<HostBuffer<T>> buffers;
        for (const std::size_t size : {1U, 2U, 31U, 128U, 129U, 5000U}) {
            buffers.emplace_back(size);
            const auto& buffer = buffers.back();
            REQUIRE(buffer.size() == size);
            REQUIRE(buffer.span().size() == size);
            REQUIRE(buffer.span().data() == buffer.data());
            REQUIRE(reinterpret_cast<std::uintptr_t>(buffer.data()) % 128 == 0);
            REQUIRE(zeroed(buffer));
            std::fill_n(reinterpret_cast<unsigned char*>(buffer.data()), size * sizeof(T),
                        static_cast<unsigned char>(0xa5));
        }
    }
}

TEST_CASE("HostBuffer: zero elements take no memory") {
    const HostBuffer<float> none(0);
    CHECK(none.data() == nullptr);
    CHECK(none.size() == 0);
    CHECK(none.span().empty());
    const HostBuffer<float> made_of_nothing;
    CHECK(made_of_nothing.data() == nullptr);
}

TEST_CASE("HostBuffer: moving passes the memory on") {
    HostBuffer<float> a(10);
    a.span()[3] = 4;
    const float* const memory = a.data();
    HostBuffer<float> b(std::move(a));
    CHECK(b.data() == memory);
    CHECK(b.size() == 10);
    CHECK(b.span()[3] == 4);
    CHECK(a.data() == nullptr);  // NOLINT(bugprone-use-after-move): that is the question
    CHECK(a.size() == 0);
    HostBuffer<float> c(3);
    c = std::move(b);
    CHECK(c.data() == memory);
    CHECK(c.size() == 10);
    HostBuffer<float>& itself = c;
    c = std::move(itself);
    CHECK(c.data() == memory);
    CHECK(c.span()[3] == 4);
}

TEST_CASE("HostBuffer: sizes beyond the address space are refused before anything is allocated") {
    constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
    CHECK(thrown_message<std::length_error>([] { HostBuffer<float>{largest}; }) ==
          "HostBuffer: 18446744073709551615 elements of 4 bytes exceed the address space");
    CHECK(thrown_message<std::length_error>([] { HostBuffer<double>{(largest >> 1U) / 8 + 1}; }) ==
          "HostBuffer: 1152921504606846976 elements of 8 bytes exceed the address space");
    // 4 * 2^62 bytes would wrap to none.
    CHECK_THROWS_AS(HostBuffer<float>{std::size_t{1} << 62U}, std::length_error);
}

}  // namespace host_buffer_test
