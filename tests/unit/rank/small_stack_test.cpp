// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace small_stack_test {

namespace {

/// What a rank on a thread with so many bytes of stack is refused with.
std::string refusal_on(std::size_t stack) {
    pthread_attr_t attributes;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, stack) == 0);
    std::string text;
    pthread_t thread{};
    const auto body = [](void* to) -> void* {
        *static_cast<std::string*>(to) =
            thrown_message<sk::UsageError>([] { sk::self::run(sk::DeviceMesh<1>{}, [](auto&) {}); });
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, &attributes, body, &text) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    return text;
}

}  // namespace

TEST_CASE("a rank on a stack as `ulimit -s 64` makes them is refused with both sizes, instead of a SIGSEGV later") {
#if defined(__GLIBC__)
    const std::string text = refusal_on(std::size_t{64} << 10U);
    CHECK(has(text, "a rank's thread has a stack of 64.00 KiB, expected at least 96.00 KiB: see ulimit -s"));
    CHECK(has(text, "small_stack_test.cpp:"));
#endif
    CHECK(refusal_on(std::size_t{1} << 20U) == "nothing was thrown");
}

}  // namespace small_stack_test
