// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>

#include "golden.hpp"
#include "largest_difference.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace clip_golden_test {

TEST_CASE_TEMPLATE("norm_partial: PyTorch's clip_grad_norm_, norm and clipped gradients", A, float, double) {
    const double tolerance = sizeof(A) == 4 ? 5e-7 : 1e-15;
    const auto cases = test::golden_cases<A>("clip");
    REQUIRE(cases.size() == 4);
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").template get<std::string>());
        sk::detail::NormSum sum;
        for (const auto& tensor : golden.at("gradients")) {
            const auto gradient = test::numbers<A>(tensor);
            sk::detail::HostKernels::norm_partial({}, std::span<const A>(gradient), 1, sum);
        }
        const sk::detail::NormTotal partial = sum.total();
        CHECK(partial.nonfinite == 0);
        const double norm = std::sqrt(partial.sum_of_squares);
        const double expected = golden.at("norm");
        CHECK(std::fabs(norm - expected) <= tolerance * expected);

        const double coefficient = std::min(1.0, golden.at("max_norm").template get<double>() / (norm + 1e-6));
        double worst = 0;
        for (std::size_t t = 0; t < golden.at("gradients").size(); ++t) {
            const auto gradient = test::numbers<A>(golden.at("gradients").at(t));
            const auto clipped = test::numbers<A>(golden.at("clipped").at(t));
            REQUIRE(gradient.size() == clipped.size());
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                const double difference = std::fabs(static_cast<A>(coefficient) * gradient[i] - clipped[i]);
                if (difference != 0) { worst = larger(worst, difference / std::fabs(double(clipped[i]))); }
            }
        }
        CHECK(worst <= tolerance);
    }
}

}  // namespace clip_golden_test
