// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/shardkit.hpp>

#include "../unit/backend/host/kernel_data.hpp"

// One rank on one GPU: the same steps as on the host's memory, whose engine the other tests prove.

namespace sk = shardkit;
namespace test = shardkit::test;

namespace {

template <class T>
struct Weight : sk::Param<"weight", T, 33, 17> {};
template <class T>
struct Bias : sk::Param<"bias", T, 33> {};

enum class Clip { no, yes };

/// The parameters after a few steps with gradients made up on the host, then the last norm.
template <class T, class Policy, class Rank>
std::vector<double> train(Rank& rank, Clip clip) {
    sk::Sharded<sk::Params<Weight<T>, Bias<T>>, Policy> layer{rank, "layer"};
    layer.initialize([](auto, auto, std::size_t i) { return 0.01 * static_cast<double>(i % 13) - 0.05; });
    sk::Model model{layer};
    sk::AdamW optimizer{model, {.learning_rate = 1e-2, .weight_decay = 0.1}};
    std::vector<double> result;
    for (std::uint32_t step = 0; step < 4; ++step) {
        sk::Accumulation accumulation{model, 2};
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
            auto window = layer.unshard();
            auto gradients = accumulation.gradients(layer);
            const auto put = [&](auto view, std::uint32_t seed) {
                const auto values = test::random_elements<T>(view.size(), seed);
                sk::host::AnyKernels::copy_in(rank.compute_stream(), std::span<const T>(values),
                                              std::span<T>(view.data(), view.size()));
            };
            put(gradients[Weight<T>{}], 2 * step);
            put(gradients[Bias<T>{}], 2 * step + 1);
            layer.reshard(std::move(window));
            accumulation.add(std::move(gradients));
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        result = {norm.value()};
        if (clip == Clip::yes) {
            optimizer.step(std::move(reduced), sk::clip(norm, 0.5));
        } else {
            optimizer.step(std::move(reduced));
        }
    }
    const auto append = [&](auto parameter, std::size_t size) {
        std::vector<T> values(size);
        layer.read_full(parameter, std::span<T>(values));
        for (const T value : values) { result.push_back(test::widened(value)); }
    };
    append(Weight<T>{}, 33 * 17);
    append(Bias<T>{}, 33);
    return result;
}

template <class T, class Policy>
void check_as_self(Clip clip) {
    std::vector<double> expected;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) { expected = train<T, Policy>(rank, clip); });
    sk::nccl::World world(sk::nccl::UniqueId::create(), 1, 0);
    std::vector<double> got;
    sk::nccl::run(sk::DeviceMesh<1>{}, world, [&](auto& rank) { got = train<T, Policy>(rank, clip); });
    REQUIRE(got.size() == expected.size());
    CHECK(got[0] == doctest::Approx(expected[0]).epsilon(1e-5));
    // The norm is added up in another order, and it scales every gradient when it clips.
    const double bound = clip == Clip::no ? 0 : std::is_same_v<T, sk::bf16> ? 1e-2 : 1e-5;
    std::size_t outside = 0;
    for (std::size_t i = 1; i < got.size(); ++i) {
        outside += std::abs(got[i] - expected[i]) <= bound * std::abs(expected[i]) + bound * 1e-2 ? 0U : 1U;
    }
    CHECK(outside == 0);
}

}  // namespace

TEST_CASE_TEMPLATE("training on one GPU is training on the host", T, float, sk::bf16) {
    for (const Clip clip : {Clip::no, Clip::yes}) {
        check_as_self<T, sk::NoShard>(clip);
        check_as_self<T, sk::ShardOptimizer>(clip);
        check_as_self<T, sk::FullShard>(clip);
    }
}
