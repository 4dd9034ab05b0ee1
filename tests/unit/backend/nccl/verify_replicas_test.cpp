// SPDX-License-Identifier: Apache-2.0
// Replicas in devices' memory are compared by kernels, behind whatever the streams still do: a flipped bit is found
// at every pace, with the same error on every rank.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "paced_ranks.hpp"
#include "unit/thrown_message.hpp"

namespace verify_replicas_test {

namespace {

namespace sk = shardkit;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

// More elements than a kernel has lanes, and one that tp splits into rows.
struct Weight : sk::Param<"weight", float, 3001> {};
struct Narrow : sk::Param<"narrow", float, 5, 12>, sk::tp::Split<1> {};
using Net = sk::Params<Weight, Narrow>;

/// Flips a bit in the device's memory.
struct Flip {
    float* of;
    void operator()() const {
        auto* const word = reinterpret_cast<unsigned char*>(of);
        *word = static_cast<unsigned char>(*word ^ 4U);
    }
};

/// Trains, then rank `victim` spoils the first element of each of its buffers; how many of these were found.
std::size_t found_of(const Mesh& mesh, paced_ranks::Paces paces, const sk::DynamicPolicy& policy, std::size_t victim,
                     sk::Offload offload = sk::Offload::none) {
    std::size_t found = 0;
    const std::string error = paced_ranks::run(mesh, paces, {}, [&](auto& rank, const auto& streams) {
        using Layer = sk::Sharded<Net, sk::DynamicPolicy>;
        Layer::Options options{policy};
        options.offload = offload;
        Layer layer(rank, "layer", {}, options);
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.01}};
        layer.initialize([](auto, auto, std::uint64_t i) { return 0.1 * static_cast<double>(i % 7); });
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            accumulation.add_zero(layer);
            optimizer.step(std::move(accumulation));
            sk::verify_replicas(model, optimizer);  // behind an update that may not have run
        }
        auto infos = layer.shards();
        for (auto& info : optimizer.shards()) { infos.push_back(std::move(info)); }
        for (const std::string_view kind : {"parameter", "exp_avg", "exp_avg_sq"}) {
            for (const std::string_view parameter : {"weight", "narrow"}) {
                // A shard need not have some of each.
                const auto flip = [&] {
                    for (const sk::ShardInfo& info : infos) {
                        if (rank.rank() != victim || info.kind != kind || info.parameter != parameter) { continue; }
                        auto* const memory = const_cast<float*>(static_cast<const float*>(info.data));
                        sk::host::AnyKernels::run_once(streams.compute, Flip{memory});
                    }
                };
                flip();
                const std::string text =
                    thrown_message<sk::ReplicaError>([&] { sk::verify_replicas(model, optimizer); });
                const bool differs = text.starts_with("verify_replicas: 'layer' " + std::string(kind) + " of '" +
                                                      std::string(parameter) + "' differs ");
                CAPTURE(text);
                CHECK((differs || text == "nothing was thrown"));
                if (rank.rank() == 0 && differs) { ++found; }
                flip();
            }
        }
        sk::verify_replicas(model, optimizer);
    });
    CHECK(error == "");
    return found;
}

}  // namespace

TEST_CASE("nccl: a flipped bit in a device's memory is found at every pace") {
    for (const paced_ranks::Paces& paces : paced_ranks::some_paces()) {
        // Two tensors, each with a parameter and two states.
        CHECK(found_of(Mesh(3, 1), paces, sk::DynamicPolicy(sk::NoShard{}), 1) == 6);
        CHECK(found_of(Mesh(4, 1), paces, sk::DynamicPolicy(sk::HybridShard<2>{}), 0) == 3);
        CHECK(found_of(Mesh(3, 1), paces, sk::DynamicPolicy(sk::FullShard{}), 2) == 0);
        // States in pinned host memory, to which copies still write when the step's call has returned.
        CHECK(found_of(Mesh(2, 1), paces, sk::DynamicPolicy(sk::NoShard{}), 1, sk::Offload::states) == 6);
        CHECK(found_of(Mesh(1, 2), paces, sk::DynamicPolicy(sk::FullShard{}), 1) == 3);
    }
}

}  // namespace verify_replicas_test
