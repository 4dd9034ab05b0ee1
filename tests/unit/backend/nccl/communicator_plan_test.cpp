// SPDX-License-Identifier: Apache-2.0
// The communicators that a plan counts are those that ranks make.
#include <cstddef>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/core/counts.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/split.hpp>

#include "alone.hpp"
#include "gpu_ranks.hpp"

namespace communicator_plan_test {

namespace {

using namespace shardkit;
using Mesh = DeviceMesh<dynamic, dynamic, dynamic>;
using Layer = Sharded<TensorList<bf16>, DynamicPolicy>;

/// Every rank makes two groups, and each communicator of the stand-in is one of a rank's.
void check(const Mesh& mesh, const DynamicPolicy& policy, bool separate, nccl::Sums sums = nccl::Sums::widened) {
    CAPTURE(mesh.describe());
    CAPTURE(separate);
    gpu_ranks::restart();
    const std::size_t ranks = mesh.size();
    nccl::Options options = gpu_ranks::patient();
    options.compare_calls = CompareCalls::off;
    options.separate_reductions = separate;
    options.max_ctas = 4;
    options.sums = sums;
    if (sums == nccl::Sums::by_nccl) {
        options.registration = nccl::Registration::windows;
        standin::set_nccl_version(nccl::configured_calls_version);
    }
    Alone alone(ranks);
    const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const gpu_ranks::Comm& comm, nccl::World& world) {
        MeshRank<Mesh> rank(mesh, comm, {}, world.streams());
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
            check(mesh, DynamicPolicy(HybridOptimizer<dynamic>{2}), separate);
            check(mesh, DynamicPolicy(HybridOptimizer<dynamic>{1}), separate);
            check(mesh, DynamicPolicy(SecondaryShard<dynamic>{2}), separate);
            check(mesh, DynamicPolicy(FullShard{}), separate, nccl::Sums::by_nccl);
            check(mesh, DynamicPolicy(HybridShard<dynamic>{2}), separate, nccl::Sums::by_nccl);
        }
    }
}

TEST_CASE("nccl: what NCCL has allocated for a rank's communicators, where it counts that") {
    constexpr std::size_t of_each = 5 << 20U;
    const auto taken = [](const nccl::Options& options) {
        standin::set_communicator_memory(of_each);
        std::optional<ByteCount> bytes;
        const auto outcomes = gpu_ranks::with_world(2, options, [&](const gpu_ranks::Comm& comm, nccl::World& world) {
            comm.separate_reductions();
            static_cast<void>(split(comm, 0, comm.rank(), "child"));
            static_cast<void>(split(comm, comm.rank(), 0, "alone"));  // which has no communicator
            if (comm.rank() == 0) { bytes = world.communicator_memory(); }
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        return bytes;
    };
    nccl::Options options = gpu_ranks::patient();
    gpu_ranks::restart();
    CHECK(taken(options) == std::nullopt);  // of NCCL 2.28
    gpu_ranks::restart();
    standin::set_nccl_version(22907);
    CHECK(taken(options) == ByteCount{3 * of_each});
    options.split_share = true;
    CHECK(taken(options) == ByteCount{of_each});
    standin::fail_next("ncclCommMemStats", ncclInvalidUsage);  // its memory manager is switched off
    CHECK(taken(options) == std::nullopt);
}

}  // namespace communicator_plan_test
