// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string_view>

#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/shardkit.hpp>

#include "../unit/backend/nccl/captured_step.hpp"
#include "../unit/backend/nccl/step_trainer.hpp"

// One rank on one GPU: launches of a captured training step compute what the same number of plain steps does, bit for
// bit. That the order holds among several ranks is proven without a GPU, and by nccl_ranks_test.

namespace sk = shardkit;
using step_trainer::Outcome;
using step_trainer::Settings;

namespace {

using Mesh = sk::DeviceMesh<1>;

template <class T, class Policy>
void check(const Settings& settings, std::string_view plan) {
    CAPTURE(Policy::name);
    CAPTURE(settings.microbatches);
    CAPTURE(settings.clips);
    CAPTURE(settings.scales_loss);
    CAPTURE(plan);
    sk::nccl::World world(sk::nccl::UniqueId::create(), 1, 0);
    const auto run = [&](const auto& capture) {
        sk::MeshRank<Mesh> rank(Mesh{}, sk::Communicator(world), {}, world.streams());
        return step_trainer::follow<T>(rank, sk::DynamicPolicy(Policy{}), settings, plan, capture);
    };
    const Outcome plain = run(step_trainer::Repeat{});
    const Outcome with_graphs =
        run([&](const auto& step) { return step_trainer::CapturedStep(world.streams(), step); });
    world.finish();
    REQUIRE(!plain.log.empty());
    CHECK(step_trainer::same(with_graphs, plain));
}

template <class T>
void check_policies(const Settings& settings, std::string_view plan) {
    check<T, sk::NoShard>(settings, plan);
    check<T, sk::ShardOptimizer>(settings, plan);
    check<T, sk::ShardGradOp>(settings, plan);
    check<T, sk::FullShard>(settings, plan);
}

}  // namespace

TEST_CASE_TEMPLATE("launches of a captured step are steps, with plain ones before and between", T, float, sk::bf16) {
    check_policies<T>({.microbatches = 1}, "eCLLeLeeLL");
    check_policies<T>({.microbatches = 2}, "eCeeLeCeLCLL");
    check_policies<T>({.microbatches = 2, .clips = false}, "eCLLL");
}

TEST_CASE("a learning rate set between launches takes effect in the next one") {
    check_policies<float>({.microbatches = 1}, "eCLrLLrLreL");
}

TEST_CASE("the loss scale adapts inside the graph, and steps that overflow are skipped there") {
    check_policies<float>({.microbatches = 2, .scales_loss = true}, "eCLLLLLeLL");
    check_policies<float>({.clips = false, .scales_loss = true}, "eCLLLLLeLL");
}
