// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace sk = shardkit;

namespace error_test {

namespace {

sk::SourceLocation here(sk::SourceLocation where = sk::SourceLocation::current()) { return where; }

template <class F>
std::string message_of(F f) {
    try {
        f();
    } catch (const std::exception& error) { return error.what(); }
    return "nothing was thrown";
}

}  // namespace

TEST_CASE("SourceLocation: a defaulted parameter names the caller's line") {
    const unsigned before = __LINE__;
    const sk::SourceLocation where = here();
    CHECK(where.line == before + 1);
    CHECK(std::string(where.file).ends_with("error_test.cpp"));
}

TEST_CASE("CommError: carries the engine, the call and the user's line") {
    const sk::CommError error("mpi", "all_gather", "message truncated", {"train.cpp", 42});
    CHECK(std::string(error.what()) == "mpi: all_gather at train.cpp:42: message truncated");
    CHECK(error.engine() == "mpi");
    CHECK(error.call() == "all_gather");
    CHECK(error.where().line == 42);
}

TEST_CASE("PeerError: is a CommError that knows the rank") {
    const auto thrower = [] { throw sk::PeerError("threads", "barrier", 3, "rank 3 returned early", {"a.cpp", 1}); };
    CHECK_THROWS_AS(thrower(), sk::CommError);
    try {
        thrower();
    } catch (const sk::PeerError& error) {
        CHECK(error.rank() == 3);
        CHECK(std::string(error.what()) == "threads: barrier at a.cpp:1: rank 3 returned early");
    }
}

TEST_CASE("throw_invalid_argument: message, then the place") {
    const auto thrower = [] {
        sk::throw_invalid_argument({"user.cpp", 7}, "heads is ", 3, ", expected a divisor of ", 8L);
    };
    CHECK_THROWS_AS(thrower(), std::invalid_argument);
    CHECK(message_of(thrower) == "heads is 3, expected a divisor of 8 (user.cpp:7)");
}

TEST_CASE("a line of the standard library is none of the user's") {
    for (const char* const file :
         {"/usr/include/c++/12/bits/stl_construct.h", "/usr/lib/llvm-14/include/c++/v1/memory"}) {
        const std::string text = message_of([&] { sk::throw_usage_error({file, 97}, "no"); });
        CHECK(text.find("no (a line that emplace_back, make_unique or the like hides: write push_back({...})") == 0);
        CHECK(text.find(file) == std::string::npos);
    }
    CHECK(message_of([] { sk::throw_usage_error({"include/mine.hpp", 97}, "no"); }) == "no (include/mine.hpp:97)");
}

TEST_CASE("concat: texts and numbers of every kind") {
    CHECK(sk::detail::concat() == "");
    CHECK(sk::detail::concat(std::string_view(), "-", std::string_view("+")) == "-+");
    CHECK(sk::detail::concat(0, -0, 'x', static_cast<signed char>(-128)) == "00x-128");
    CHECK(sk::detail::concat("a", std::string("b"), std::string_view("c")) == "abc");
    using sk::detail::number_text;
    CHECK(sk::detail::concat(-3, ' ', 18446744073709551615ULL, ' ', number_text(0.1), ' ', number_text(-2.5F)) ==
          "-3 " + std::string("18446744073709551615") + " 0.1 -2.5");
    CHECK(sk::detail::concat(number_text(-1e-300 * 1e-10), "|", number_text(1.0 / 3)) ==
          "-1e-310|0.3333333333333333");
}

static_assert(std::is_base_of_v<std::logic_error, sk::UsageError>);
static_assert(std::is_base_of_v<std::runtime_error, sk::CommError>);

}  // namespace error_test
