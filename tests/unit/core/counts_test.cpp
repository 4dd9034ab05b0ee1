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

TEST_CASE("Count: arithmetic and order") {
    sk::ElementCount count(5);
    count += sk::ElementCount(7);
    CHECK(count == sk::ElementCount(12));
    CHECK(count + sk::ElementCount(1) == sk::ElementCount(13));
    CHECK(count - sk::ElementCount(2) == sk::ElementCount(10));
    CHECK(count * 3 == sk::ElementCount(36));
    CHECK(3 * count == sk::ElementCount(36));
    CHECK(sk::ElementCount(2) < sk::ElementCount(3));
    CHECK(sk::ElementCount{}.value == 0);
}

TEST_CASE("Count: past 2^32") {
    const sk::ElementCount elements(5'000'000'000);
    CHECK(sk::bytes(elements, 8) == sk::ByteCount(40'000'000'000));
    CHECK((elements + elements).value == 10'000'000'000);
}

static_assert(sk::bytes(sk::ElementCount(3), 4) == sk::ByteCount(12), "usable in constant expressions");
static_assert(Adds<sk::ElementCount, sk::ElementCount>);
static_assert(!Adds<sk::ElementCount, sk::ByteCount> && !Adds<sk::ElementCount, int>, "kinds do not mix");
static_assert(!Compares<sk::ElementCount, sk::ByteCount>);
static_assert(!std::convertible_to<std::uint64_t, sk::ElementCount>, "a bare number has no kind");

}  // namespace counts_test
