// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "unit/thrown_message.hpp"
#include "with_world.hpp"

namespace verify_replicas_test {

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 1001> {};

TEST_CASE("a bit flipped in one process is found by all, whatever carries the digests, and hashes are the same") {
    const std::size_t n = sk::mpi::Environment::size();
    std::uint64_t expected_hash = 0;
    for (const sk::mpi::Options& options : mpi_test::ways) {
        CAPTURE(options.overlap);
        CAPTURE(options.shared_memory);
        CAPTURE(options.ranks_per_host);
        sk::mpi::run(
            sk::DeviceMesh<sk::dynamic>(n),
            [&](auto& rank) {
                sk::Sharded<Weight, sk::NoShard> layer{rank, "layer"};
                sk::Model model{layer};
                sk::AdamW optimizer{model, {.learning_rate = 0.1}};
                layer.initialize([](auto, auto, std::uint64_t i) { return 0.5 * static_cast<double>(i % 9); });
                sk::Accumulation accumulation{model};
                accumulation.add_zero(layer);
                optimizer.step(std::move(accumulation));
                sk::verify_replicas(model, optimizer);
                const std::uint64_t hash = sk::hash_values(model)[0].hash;
                if (expected_hash == 0) { expected_hash = hash; }
                CHECK(hash == expected_hash);
                const auto info = optimizer.shards().back();
                if (rank.rank() + 1 == n) { *static_cast<unsigned char*>(const_cast<void*>(info.data)) ^= 128U; }
                const std::string text =
                    thrown_message<sk::ReplicaError>([&] { sk::verify_replicas(model, optimizer); });
                const std::string what = "verify_replicas: 'layer' exp_avg_sq of 'weight' differs ";
                if (n == 1) {
                    CHECK(text == "nothing was thrown");
                } else if (n == 2) {
                    CHECK(text.starts_with(what + "between ranks 0 and 1, and no majority"));
                } else {
                    CHECK(
                        text.starts_with(what + "on rank " + std::to_string(n - 1) + " from the majority, ranks 0"));
                }
            },
            {}, mpi_test::patient(options));
    }
}

}  // namespace verify_replicas_test
