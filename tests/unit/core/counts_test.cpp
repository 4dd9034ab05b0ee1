// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>

#include <shardkit/core/counts.hpp>

namespace sk = shardkit;

namespace counts_test {

namespace {

template <class A, class B>
concept Adds = requires(A a, B b) {
    a + b;
};
template <class A, class B>
concept Compares = requires(A a, B b) {
    a < b;
};

}  // namespace

TEST_CASE("ByteCount: arithmetic and order") {
    sk::ByteCount count(5);
    count += sk::ByteCount(7);
    CHECK(count == sk::ByteCount(12));
    CHECK(count + sk::ByteCount(1) == sk::ByteCount(13));
    CHECK(count - sk::ByteCount(2) == sk::ByteCount(10));
    CHECK(count * 3 == sk::ByteCount(36));
    CHECK(3 * count == sk::ByteCount(36));
    CHECK(sk::ByteCount(2) < sk::ByteCount(3));
    CHECK(sk::ByteCount{}.value == 0);
}

TEST_CASE("ByteCount: past 2^32") {
    const sk::ByteCount bytes(40'000'000'000);
    CHECK((bytes + bytes).value == 80'000'000'000);
}

static_assert(3 * sk::ByteCount(4) == sk::ByteCount(12), "usable in constant expressions");
static_assert(Adds<sk::ByteCount, sk::ByteCount>);
static_assert(!Adds<sk::ByteCount, int> && !Compares<sk::ByteCount, std::uint64_t>, "a bare number is none");
static_assert(!std::convertible_to<std::uint64_t, sk::ByteCount>);

}  // namespace counts_test
