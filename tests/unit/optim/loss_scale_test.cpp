// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/step/loss_scale_state.hpp>

#include "golden.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;

namespace loss_scale_test {

TEST_CASE("LossScaleState: PyTorch's sequences of scales") {
    const auto& cases = test::optimizer_golden().at("loss_scale");
    REQUIRE(cases.size() == 3);
    for (const auto& golden : cases) {
        CAPTURE(golden.at("name").get<std::string>());
        sk::LossScaleState scale({.initial = golden.at("initial"), .growth_interval = golden.at("growth_interval")});
        const auto expected = test::numbers<double>(golden.at("scales"));
        std::vector<double> given{scale.value()};
        for (const char overflow : golden.at("overflows").get<std::string>()) {
            scale.update(overflow == '1' ? sk::FoundInf::yes : sk::FoundInf::no);
            given.push_back(scale.value());
        }
        CHECK(given == expected);
    }
}

TEST_CASE("LossScaleState: starts at 2^16, doubles after 2000 clean steps in a row, halves on overflow") {
    sk::LossScaleState scale;
    CHECK(scale.value() == 65536);
    for (int step = 0; step < 1999; ++step) { scale.update(sk::FoundInf::no); }
    CHECK(scale.value() == 65536);
    CHECK(scale.clean_steps() == 1999);
    scale.update(sk::FoundInf::yes);
    CHECK(scale.value() == 32768);
    CHECK(scale.clean_steps() == 0);
    for (int step = 0; step < 1999; ++step) { scale.update(sk::FoundInf::no); }
    CHECK(scale.value() == 32768);
    scale.update(sk::FoundInf::no);
    CHECK(scale.value() == 65536);
    CHECK(scale.clean_steps() == 0);
}

TEST_CASE("found_inf: any nonfinite count is a yes, an overflowed sum alone is not") {
    const auto found_inf = [](double sum_of_squares, double nonfinite) {
        const double total[]{sum_of_squares, nonfinite};
        return sk::ClipCoefficient{total}.found_inf();
    };
    CHECK(sk::ClipCoefficient{}.found_inf() == sk::FoundInf::no);
    CHECK(found_inf(0, 0) == sk::FoundInf::no);
    CHECK(found_inf(INFINITY, 0) == sk::FoundInf::no);
    CHECK(found_inf(1, 1) == sk::FoundInf::yes);
}

}  // namespace loss_scale_test
