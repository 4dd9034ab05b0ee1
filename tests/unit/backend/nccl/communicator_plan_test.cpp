// SPDX-License-Identifier: Apache-2.0
// The communicators that a plan counts are those that ranks make.
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/communicator_plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/plan_model.hpp>

#include "alone.hpp"
#include "gpu_ranks.hpp"

namespace communicator_plan_test {

namespace {

using namespace shardkit;
using Mesh = DeviceMesh<dynamic, dynamic, dynamic>;
using Layer = Sharded<TensorList<bf16>, DynamicPolicy, gpu_ranks::Engine>;

/// Every rank makes two groups, and each communicator of the stand-in is one of a rank's.
void check(const Mesh& mesh, const DynamicPolicy& policy, bool separate) {
    CAPTURE(mesh.describe());
    CAPTURE(separate);
    gpu_ranks::restart();
    const std::size_t ranks = mesh.size();
    nccl::Options options = gpu_ranks::patient();
    options.compare_calls = CompareCalls::off;
    options.separate_reductions = separate;
    options.max_ctas = 4;
    Alone alone(ranks);
    const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const gpu_ranks::Comm& comm, nccl::World& world) {
        Rank<gpu_ranks::Engine, Mesh> rank(mesh, comm, {}, world.streams());
        Layer first(rank, "first", TensorList<bf16>{{"w", {16, 16}}}, {.policy = policy});
        Layer second(rank, "second", TensorList<bf16>{{"w", {8, 8}}}, {.policy = policy});
        Model model{first, second};
        const std::size_t bytes = plan(model).memory.communicators.value;
        alone(rank.rank(), 0,
              [&] { CHECK(standin::live().communicators * 4 * nccl::detail::channel_bytes == ranks * bytes); });
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

}  // namespace

TEST_CASE("nccl: a plan counts as many communicators as ranks make") {
    for (const bool separate : {false, true}) {
        for (const Mesh& mesh : {Mesh(4, 1, 1), Mesh(2, 2, 1), Mesh(4, 1, 2)}) {
            check(mesh, DynamicPolicy(FullShard{}), separate);
            check(mesh, DynamicPolicy(NoShard{}), separate);
            check(mesh, DynamicPolicy(ShardOptimizer{}), separate);
            check(mesh, DynamicPolicy(HybridShard<dynamic>{2}), separate);
        }
    }
}

}  // namespace communicator_plan_test
