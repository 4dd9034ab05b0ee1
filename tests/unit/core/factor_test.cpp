// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
#include <limits>

#include <doctest/doctest.h>

#include <shardkit/core/factor.hpp>

namespace sk = shardkit;

namespace factor_test {

TEST_CASE("Factor: a number in range is one float, and changes no bits") {
    for (const double number : {1.0, 1.0 / 3, -0.7, 0x1p-126, 0x1p127}) {
        const sk::rules::Factor<float> factor(number);
        CHECK(factor.first == static_cast<float>(number));
        CHECK(factor.second == 1);
        CHECK(factor * 3.3F == static_cast<float>(number) * 3.3F);
    }
    CHECK(sk::rules::Factor<double>(1e-320).second == 1);
    CHECK(sk::rules::Factor<float>(0) * 3.0F == 0);
}

TEST_CASE("Factor: beyond the range of float") {
    for (const double number : {1e-39, -1e-45, 1e-60, 0x1p-252, 1e39, -1e60, 0x1p250}) {
        CAPTURE(number);
        const sk::rules::Factor<float> factor(number);
        for (const double result : {1e-37, 1.0, -3e10, 3e38}) {
            const double value = result / number;
            if (std::fabs(value) > std::numeric_limits<float>::max() || std::fabs(value) < 1e-37) { continue; }
            CHECK(factor * static_cast<float>(value) == doctest::Approx(result).epsilon(3e-7).scale(0));
        }
    }
    CHECK(sk::rules::Factor<float>(1e39) * 0.0F == 0);
    CHECK(std::isinf(sk::rules::Factor<float>(1e39) * 1.0F));
    constexpr sk::rules::Factor<float> known(0x1p-140);
    static_assert(known * 0x1p120F == 0x1p-20F);
}

}  // namespace factor_test
