// SPDX-License-Identifier: Apache-2.0
#include <shardkit/optim/norm.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace norm_test {

namespace {

struct Weight : sk::Param<"weight", double, 3> {};
struct Odd : sk::Param<"odd", float, 777> {};
struct Long : sk::Param<"long", float, 9001> {};

}  // namespace

TEST_CASE("BeginNorm: the scale of every gradient, and sums of zero") {
    double scale = 7;
    std::array<double, 4> sums{1, 2, 3, 4};
    sk::detail::BeginNorm{0.25, nullptr, &scale, sums}();
    CHECK(scale == 0.25);
    CHECK(sums == std::array<double, 4>{});
    const sk::LossScaleState loss_scale({.initial = 8});
    sk::detail::BeginNorm{0.25, &loss_scale, &scale, sums}();
    CHECK(scale == 0.03125);
}

TEST_CASE("FinishNorm: rounds what all ranks added, both kinds apart") {
    std::array<double, sk::detail::NormSum::numbers> sent{};
    for (const double squares : {0x1p53, 1.0, 1.0}) {
        sk::detail::NormSum of_rank;
        of_rank.squares.add(squares);
        of_rank.nonfinite = 2;
        std::array<double, sk::detail::NormSum::numbers> of{};
        of_rank.add_to(of.data());
        for (std::size_t i = 0; i < of.size(); ++i) { sent[i] += of[i]; }
    }
    std::array<double, 2> total{5, 5};
    sk::detail::FinishNorm{sent.data(), total.data()}();
    CHECK(total == std::array<double, 2>{0x1p53 + 2, 6});
}

TEST_CASE("global_norm: the same bits on 1 to 5 ranks under every policy, at the ends of the range too") {
    const auto norms_on = [](std::size_t ranks, const sk::DynamicPolicy& policy) {
        std::vector<double> norms;
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            using Layer = sk::Sharded<sk::Params<Odd, Long>, sk::DynamicPolicy, sk::Precision<float>>;
            Layer layer(rank, "layer", {}, {.policy = policy});
            sk::Model model{layer};
            for (const double size : {1.0, 1e-30, 1e-42, 1e30}) {
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                if (rank.rank() == 0) {  // so that the sum over ranks adds zeros
                    double value = 0.3;
                    for (std::size_t p = 0; p < 2; ++p) {
                        for (std::size_t i = 0; i < gradients.view(p).size(); ++i) {
                            value = value * 3.9 * (1 - value);
                            gradients.view(p).data()[i] = static_cast<float>(size * value);
                        }
                    }
                }
                accumulation.add(std::move(gradients));
                const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
                const double norm = sk::global_norm(reduced).value();
                if (rank.rank() == 0) { norms.push_back(norm); }
            }
        });
        return norms;
    };
    const auto expected = norms_on(1, sk::DynamicPolicy(sk::NoShard{}));
    CHECK(expected[3] == doctest::Approx(1e30 * expected[0]));
    for (const std::size_t ranks : {1U, 2U, 3U, 4U, 5U}) {
        CAPTURE(ranks);
        CHECK(norms_on(ranks, sk::DynamicPolicy(sk::NoShard{})) == expected);
        CHECK(norms_on(ranks, sk::DynamicPolicy(sk::ShardOptimizer{})) == expected);
        CHECK(norms_on(ranks, sk::DynamicPolicy(sk::ShardGradOp{})) == expected);
        CHECK(norms_on(ranks, sk::DynamicPolicy(sk::FullShard{})) == expected);
        if (ranks == 4) { CHECK(norms_on(ranks, sk::DynamicPolicy(sk::HybridShard<2>{})) == expected); }
    }
}

TEST_CASE("GlobalNorm: refused once its memory belongs to a later norm") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<Weight, sk::NoShard> layer{rank, "layer"};
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
