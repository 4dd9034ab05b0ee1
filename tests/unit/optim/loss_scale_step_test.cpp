// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/verify/gradient_norms.hpp>

#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace loss_scale_step_test {

using toy::Bias;
using toy::Flat;

namespace {

using Half = sk::Precision<sk::fp16>;

/// Every byte that this rank's containers and optimizer list.
template <class Layer, class Optimizer>
std::vector<std::byte> bytes_of(Layer& layer, Optimizer& optimizer) {
    std::vector<std::byte> bytes;
    const auto append = [&](const std::vector<sk::ShardInfo>& list) {
        for (const auto& info : list) {
            const auto* const data = static_cast<const std::byte*>(info.data);
            bytes.insert(bytes.end(), data, data + info.local.size() * sk::size_of(info.type));
        }
    };
    append(layer.shards());
    append(optimizer.shards());
    return bytes;
}

enum class Clip { no, yes };
constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

/// One scaled step, in which rank `overflowing` has an infinite element; returns the norm.
template <class Rank, class Layer, class Optimizer, class Scale>
double step(Rank& rank, Layer& layer, Optimizer& optimizer, Scale& scale, Clip clip,
            std::size_t overflowing = nobody) {
    sk::Model model{layer};
    sk::Accumulation accumulation{model, 2};
    for (const int microbatch : {0, 1}) {
        auto handle = accumulation.gradients(layer);
        toy::fill(handle, 0.25 * scale.value() * static_cast<double>(rank.rank() + 1));
        if (rank.rank() == overflowing && microbatch == 0) {
            handle[Bias{}][3] = static_cast<sk::fp16>(std::numeric_limits<float>::infinity());
        }
        accumulation.add(std::move(handle));
    }
    auto reduced = sk::reduce(std::move(accumulation), sk::mean, scale);
    const auto norm = sk::global_norm(reduced);
    if (clip == Clip::yes) {
        optimizer.step(std::move(reduced), sk::clip(norm, 1));
    } else {
        optimizer.step(std::move(reduced));
    }
    return norm.value();
}

void check_protocol(const sk::DynamicPolicy& policy, Clip clip, std::size_t ranks, std::size_t overflowing) {
    CAPTURE(policy.name());
    CAPTURE(overflowing);
    sk::threads::run(Flat{ranks}, [&](auto& rank) {
        auto layer = toy::linear_layer<sk::DynamicPolicy, Half>(rank, "layer", policy);
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        sk::LossScale scale(rank, {.initial = 16, .growth_interval = 2});
        // Two microbatches of (i + 1) / 4 times rank + 1: their mean over 3 ranks is a gradient of i + 1.
        const double expected = std::sqrt(14910.0 + 140.0) * static_cast<double>(ranks + 1) / 4;
        CHECK(step(rank, layer, optimizer, scale, clip) == doctest::Approx(expected).epsilon(1e-6));
        CHECK(scale.value() == 16);
        CHECK(optimizer.steps(layer) == 1);

        const auto before = bytes_of(layer, optimizer);
        const double norm = step(rank, layer, optimizer, scale, clip, overflowing);
        CHECK_FALSE(std::isfinite(norm));
        CHECK(scale.value() == 8);
        CHECK(bytes_of(layer, optimizer) == before);
        CHECK(optimizer.steps(layer) == 1);

        for (int clean = 1; clean <= 2; ++clean) {
            CHECK(step(rank, layer, optimizer, scale, clip) == doctest::Approx(expected).epsilon(1e-6));
            CHECK(scale.value() == (clean == 1 ? 8 : 16));
        }
        if (rank.rank() == 0) { CHECK(bytes_of(layer, optimizer) != before); }  // rank 2's shard is padding alone
        CHECK(optimizer.steps(layer) == 3);
    });
}

}  // namespace

TEST_CASE("an overflow on one rank: all skip the step bitwise, the scale halves; clean steps let it grow") {
    for (const Clip clip : {Clip::no, Clip::yes}) {
        check_protocol(sk::DynamicPolicy(sk::NoShard{}), clip, 3, 1);
        check_protocol(sk::DynamicPolicy(sk::ShardOptimizer{}), clip, 3, 1);
        check_protocol(sk::DynamicPolicy(sk::ShardGradOp{}), clip, 3, 1);
        check_protocol(sk::DynamicPolicy(sk::FullShard{}), clip, 3, 1);
        // Ranks 0 and 1 are one replica, 2 and 3 the other: each has to skip for a rank of the other.
        for (const std::size_t overflowing : {0U, 1U, 2U, 3U}) {
            check_protocol(sk::DynamicPolicy(sk::HybridShard<2>{}), clip, 4, overflowing);
        }
    }
}

namespace {

struct Whole : sk::Param<"whole", float, 3> {};
struct Part : sk::Param<"part", float, 12> {
    using TensorParallel = sk::tp::Split<0>;
};
struct Fixed : sk::Param<"fixed", float, 2>, sk::Frozen {};
struct Late : sk::Param<"late", float, 70> {};
using Parts = sk::Params<Whole, Part, Fixed, Late>;

}  // namespace

TEST_CASE("an overflow on one rank of tp, of a parameter that each of them holds whole: all skip the step") {
    using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
    const auto check = [](const Mesh& mesh, const sk::DynamicPolicy& policy, sk::NormKind norm, float bad,
                          std::size_t overflowing) {
        CAPTURE(policy.name());
        CAPTURE(overflowing);
        sk::threads::run(mesh, [&](auto& rank) {
            using Layer = sk::Sharded<Parts, sk::DynamicPolicy>;
            std::vector<Layer> layers;
            for (const char* path : {"first", "last"}) {
                layers.emplace_back(rank, path, sk::Shapes<Parts>{}, typename Layer::Options{.policy = policy});
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {.learning_rate = 0.5}};
            sk::LossScale scale(rank, {.initial = 16});
            const auto accumulated = [&](std::size_t by) {
                sk::Accumulation accumulation{model};
                for (Layer& layer : layers) {
                    auto gradients = accumulation.gradients(layer);
                    for (std::size_t p = 0; p < 4; ++p) {
                        auto view = gradients.view(p);
                        for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = p == 2 ? bad : 16; }
                    }
                    if (rank.rank() == by && layer.path() == "last") { gradients[Late{}][69] = bad; }
                    accumulation.add(std::move(gradients));
                }
                return accumulation;
            };
            const double expected = norm == sk::NormKind::infinity ? 1 : std::sqrt(2 * (3 + 12 + 70));
            const auto step = [&](std::size_t by) {
                return optimizer.step(accumulated(by), {.loss_scale = &scale, .norm = norm}).value();
            };
            CHECK(step(nobody) == expected);
            std::vector<std::byte> before[2];
            for (std::size_t l = 0; l < 2; ++l) { before[l] = bytes_of(layers[l], optimizer); }
            CHECK_FALSE(std::isfinite(step(overflowing)));
            CHECK(scale.skipped());
            CHECK(scale.value() == 8);
            for (std::size_t l = 0; l < 2; ++l) { CHECK(bytes_of(layers[l], optimizer) == before[l]); }
            const auto reduced = sk::reduce(accumulated(overflowing), sk::mean, scale);
            const sk::GradientNorms norms = sk::gradient_norms(reduced);
            CHECK(norms.groups[0].two == doctest::Approx(std::sqrt(85) * 2));
            CHECK_FALSE(std::isfinite(norms.groups[1].two));
            CHECK_FALSE(std::isfinite(norms.groups[1].infinity));
        });
    };
    const float bad[] = {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
    for (const std::size_t overflowing : {0U, 1U, 2U, 5U}) {
        const auto kind = overflowing % 2 == 0 ? sk::NormKind::infinity : sk::NormKind::two;
        const float value = bad[overflowing / 2 % 2];
        const Mesh mesh(2, 3, 1);
        check(mesh, sk::DynamicPolicy(sk::NoShard{}), kind, value, overflowing);
        check(mesh, sk::DynamicPolicy(sk::ShardOptimizer{}), kind, value, overflowing);
        check(mesh, sk::DynamicPolicy(sk::ShardGradOp{}), kind, value, overflowing);
        check(mesh, sk::DynamicPolicy(sk::FullShard{}), kind, value, overflowing);
        check(Mesh(4, 2, 1), sk::DynamicPolicy(sk::HybridShard<2>{}), kind, value, overflowing);
    }
}

TEST_CASE(
    "a gradient whose square overflows: an infinite norm, a clipped step that moves nothing and is not skipped") {
    sk::threads::run(Flat{3}, [&](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        sk::LossScale scale(rank, {.initial = 4});
        const auto before = bytes_of(layer, optimizer);
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(layer);
        if (rank.rank() == 1) { handle[Bias{}][3] = 1e200; }
        accumulation.add(std::move(handle));
        auto reduced = sk::reduce(std::move(accumulation), sk::sum, scale);
        const auto norm = sk::global_norm(reduced);
        CHECK(norm.value() == std::numeric_limits<double>::infinity());
        CHECK(norm.found_inf() == sk::FoundInf::no);
        optimizer.step(std::move(reduced), sk::clip(norm, 1));
        CHECK(scale.value() == 4);
        CHECK(optimizer.steps(layer) == 1);
        CHECK(bytes_of(layer, optimizer) == before);
    });
}

TEST_CASE("a scale that is a power of two changes no bit of the result") {
    const auto train = [](double initial) {
        std::vector<float> values(35 + 7);
        sk::threads::run(Flat{3}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::FullShard, Half>(rank);
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 4, .rule = sk::Momentum::nesterov, .momentum = 0.5}};
            sk::LossScale scale(rank, {.initial = initial});
            for (int i = 0; i < 3; ++i) { step(rank, layer, optimizer, scale, Clip::yes); }
            std::vector<float> mine(42);
            layer.read_full(toy::Weight{}, std::span(mine).first(35));
            layer.read_full(Bias{}, std::span(mine).last(7));
            if (rank.rank() == 0) { values = mine; }
        });
        return values;
    };
    const auto plain = train(1);
    CHECK(plain[41] < 106);  // it moved
    CHECK(train(64) == plain);
    CHECK(train(0.25) == plain);
}

}  // namespace loss_scale_step_test
