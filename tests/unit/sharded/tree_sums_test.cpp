// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace tree_sums_test {

namespace {

struct Odd : sk::Param<"odd", float, 777> {};
struct Long : sk::Param<"long", float, 9001> {};
using Group = sk::Params<Odd, Long>;

/// What rank `rank` adds in a step, over many magnitudes: in another order sums have other bits.
float given(std::size_t rank, std::size_t step, std::size_t p, std::size_t i) {
    std::uint64_t x = ((rank * 8 + step) * 2 + p) * 16384 + i + 1;
    for (int round = 0; round < 3; ++round) { x = (x ^ x >> 29U) * 0xbf58476d1ce4e5b9ULL; }
    const auto magnitude = static_cast<float>(1U << (x & 15U));
    return (static_cast<float>(x >> 40U) / 16777216.0F - 0.5F) * magnitude;
}
/// The sum of `ranks` ranks from `first` on: of each half, and then of both.
float halves(std::size_t first, std::size_t ranks, std::size_t step, std::size_t p, std::size_t i) {
    if (ranks == 1) { return given(first, step, p, i); }
    return halves(first, ranks / 2, step, p, i) + halves(first + ranks / 2, ranks / 2, step, p, i);
}

struct Trained {
    std::vector<double> norms;
    std::vector<float> values;
    bool operator==(const Trained&) const = default;
};

/// Three clipped steps of AdamW. A rank adds what `gradient(rank, step, parameter, element)` says.
template <class Gradient>
Trained train(std::size_t dp, std::size_t cp, const sk::DynamicPolicy& policy, const Gradient& gradient) {
    Trained trained;
    sk::threads::run(sk::DeviceMesh{dp, 1, cp}, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy, sk::Precision<float>>;
        Layer layer(rank, "layer", {}, {.policy = policy});
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.125}};
        for (std::size_t step = 0; step < 3; ++step) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < 2; ++p) {
                const auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = gradient(rank.rank(), step, p, i); }
            }
            accumulation.add(std::move(gradients));
            auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(8));
            const auto norm = sk::global_norm(reduced);
            if (rank.rank() == 0) { trained.norms.push_back(norm.value()); }
            optimizer.step(std::move(reduced), sk::clip(norm, 1));
        }
        const auto window = layer.unshard();
        if (rank.rank() != 0) { return; }
        for (std::size_t p = 0; p < 2; ++p) {
            const auto view = window.view(p);
            trained.values.insert(trained.values.end(), view.data(), view.data() + view.size());
        }
    });
    return trained;
}

/// An engine that does not know tree_sum.
class PlainVerbs final : public sk::host::DecoratedVerbs {
  public:
    using DecoratedVerbs::DecoratedVerbs;
    std::string_view engine_name() const noexcept override { return "plain"; }
    sk::engine::Traits traits() const noexcept override { return {}; }

  private:
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const PlainVerbs>(std::move(verbs));
    }
};

}  // namespace

TEST_CASE("TreeSums: every policy, and one rank that adds the tree itself, have the same bits") {
    for (const std::size_t ranks : {2U, 4U, 8U}) {
        CAPTURE(ranks);
        const Trained expected = train(1, 1, sk::DynamicPolicy(sk::NoShard{}),
                                       [&](std::size_t, std::size_t step, std::size_t p, std::size_t i) {
                                           return halves(0, ranks, step, p, i);
                                       });
        CHECK(expected.norms[0] > 1);
        const auto with = [&](const auto& policy) { return train(ranks, 1, sk::DynamicPolicy(policy), given); };
        CHECK(with(sk::TreeSums<sk::NoShard>{}) == expected);
        CHECK(with(sk::TreeSums<sk::ShardOptimizer>{}) == expected);
        CHECK(with(sk::TreeSums<sk::ShardGradOp>{}) == expected);
        CHECK(with(sk::TreeSums<sk::FullShard>{}) == expected);
        CHECK(with(sk::TreeSums<sk::HybridShard<2>>{}) == expected);
        CHECK((with(sk::FullShard{}) == expected) == (ranks == 2));
    }
}

TEST_CASE("TreeSums: cp ranks beside dp add up along one tree") {
    const Trained expected =
        train(1, 1, sk::DynamicPolicy(sk::NoShard{}),
              [&](std::size_t, std::size_t step, std::size_t p, std::size_t i) { return halves(0, 4, step, p, i); });
    CHECK(train(2, 2, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{}), given) == expected);
    using Both = sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>;
    CHECK(train(2, 2, sk::DynamicPolicy(sk::TreeSums<Both>{}), given) == expected);
}

TEST_CASE("TreeSums: refused on ranks that are no power of two") {
    CHECK_THROWS_WITH_AS(
        train(3, 1, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{}), given),
        doctest::Contains("'layer': policy 'full_shard' adds along a tree over 3 ranks of dp, expected "
                          "a power of two"),
        std::invalid_argument);
}

TEST_CASE("TreeSums: refused by name on an engine without them") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        const sk::Communicator world(std::make_shared<const PlainVerbs>(rank.world().verbs()));
        sk::MeshRank<sk::DeviceMesh<2>> plain{{}, world};
        using Layer = sk::Sharded<Group, sk::TreeSums<sk::FullShard>>;
        const std::string refused = thrown_message<sk::UsageError>([&] { const Layer layer{plain, "layer"}; });
        CHECK(refused.find("'layer': policy 'full_shard' adds along a tree, and the engine plain has "
                           "no tree_sum, expected an engine whose traits say adds_along_trees (") == 0);
        CHECK(refused.find("tree_sums_test.cpp") != std::string::npos);
    });
}

}  // namespace tree_sums_test
