// SPDX-License-Identifier: Apache-2.0
// Cases of every outcome, run one by one by check_counts.py.
#include <cstdlib>
#include <stdexcept>

#include <doctest/doctest.h>

TEST_CASE("passes") { CHECK(1 + 1 == 2); }

TEST_CASE("has subcases") {
    SUBCASE("one") { CHECK(true); }
    SUBCASE("two") { CHECK(true); }
}

TEST_CASE("fails") { CHECK(1 + 1 == 3); }

TEST_CASE("throws") { throw std::runtime_error("planted"); }

TEST_CASE("dies") { std::_Exit(3); }

TEST_CASE("is skipped" * doctest::skip()) { CHECK(false); }
