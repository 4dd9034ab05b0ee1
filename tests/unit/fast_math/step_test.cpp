// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/linear_layer.hpp"

// Compiled with -Ofast: a step that overflows changes nothing but the scale, one that does not is the step by hand.

namespace step_test {

namespace sk = shardkit;
using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

float infinity() {
    volatile std::uint32_t hidden = 0x7f80'0000;
    return std::bit_cast<float>(static_cast<std::uint32_t>(hidden));
}

template <class Policy>
void check(bool clips) {
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto layer = toy::linear_layer<Policy, sk::Precision<float>>(rank);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        sk::LossScale scale(rank, {.initial = 16});
        const auto bias = [&] {
            std::vector<float> values(toy::outputs);
            layer.read_full(Bias{}, std::span<float>(values));
            return values;
        };
        const std::vector<float> before = bias();
        REQUIRE(before[6] == 106);
        const auto step = [&](double factor, bool overflows) {
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            toy::fill(handle, factor * scale.value());
            if (overflows && rank.rank() == 1) { handle[Bias{}][1] = infinity(); }
            accumulation.add(std::move(handle));
            auto reduced = sk::reduce(std::move(accumulation), sk::mean, scale);
            if (clips) {
                const auto norm = sk::global_norm(reduced);
                optimizer.step(std::move(reduced), sk::clip(norm, 1e9));
            } else {
                optimizer.step(std::move(reduced));
            }
        };
        step(0.25, true);
        CHECK(scale.value() == 8);
        CHECK(bias() == before);
        step(0.25, false);  // gradient i is (i + 1) / 4 on both ranks
        CHECK(scale.value() == 8);
        const std::vector<float> after = bias();
        for (std::size_t i = 0; i < after.size(); ++i) {
            CHECK(after[i] == before[i] - 0.125F * static_cast<float>(i + 1));
        }
    });
}

}  // namespace

TEST_CASE("a step that overflows is left out and halves the scale") {
    for (const bool clips : {false, true}) {
        CAPTURE(clips);
        check<sk::NoShard>(clips);
        check<sk::FullShard>(clips);
    }
}

}  // namespace step_test
