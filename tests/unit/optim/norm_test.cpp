// SPDX-License-Identifier: Apache-2.0
#include <shardkit/optim/norm.hpp>

#include <array>
#include <cstddef>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/no_shard.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace norm_test {

namespace {

struct Weight : sk::Param<"weight", double, 3> {};

}  // namespace

TEST_CASE("BeginNorm: the scale of every gradient, and partials of zero") {
    double scale = 7;
    std::array<double, 4> partials{1, 2, 3, 4};
    sk::detail::BeginNorm{0.25, nullptr, &scale, partials}();
    CHECK(scale == 0.25);
    CHECK(partials == std::array<double, 4>{});
    const sk::LossScaleState loss_scale({.initial = 8});
    sk::detail::BeginNorm{0.25, &loss_scale, &scale, partials}();
    CHECK(scale == 0.03125);
}

TEST_CASE("FinishNorm: adds in shard order, both kinds apart") {
    // In this order the small numbers are lost against the large one; in another they are not.
    const std::array<double, 8> partials{0x1p53, 1, 1, 0, 1, 2, -0x1p53, 4};
    std::array<double, 2> total{5, 5};
    sk::detail::FinishNorm{partials, total.data()}();
    CHECK(total[0] == 0);
    CHECK(total[1] == 7);
}

TEST_CASE("NormMemory: the scratch is kept and only grows") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        auto& memory = rank.template kept<sk::detail::NormMemory<sk::self::Engine>>();
        const auto small = memory.scratch(4);
        CHECK(small.size() == 4);
        const auto large = memory.scratch(1000);
        CHECK(large.size() == 1000);
        large[999] = 3;
        const auto again = memory.scratch(8);
        CHECK(again.size() == 8);
        CHECK(again.data() == large.data());
        CHECK(memory.scratch(1000)[999] == 3);
    });
}

TEST_CASE("GlobalNorm: refused once its memory belongs to a later norm") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<Weight, sk::NoShard, sk::EngineOf<decltype(rank)>> layer{rank, "layer"};
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const auto norm_of = [&](double value) {
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            handle[Weight{}][1] = value;
            accumulation.add(std::move(handle));
            const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
            return sk::global_norm(reduced);
        };
        const auto kept = norm_of(3);
        for (std::size_t i = 1; i < sk::detail::norm_slots; ++i) { CHECK(norm_of(1).value() == 1); }
        CHECK(kept.value() == 3);
        const auto later = norm_of(2);
        CHECK(later.value() == 2);
        CHECK_USAGE_ERROR(kept.value(),
                          "GlobalNorm: 16 more norms were taken before this one was used, expected fewer than 16");
        CHECK_USAGE_ERROR(sk::clip(kept, 1),
                          "GlobalNorm: 16 more norms were taken before this one was used, expected fewer than 16");
    });
}

}  // namespace norm_test
