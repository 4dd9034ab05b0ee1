// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/muon/host_products.hpp>

#include "unit/optim/muon_training.hpp"
#include "with_world.hpp"

namespace muon_test {

namespace sk = shardkit;

TEST_CASE(
    "Muon's steps are one thread's to the bit, through shared memory, messages and threads of the engine's own") {
    const std::vector<float> expected = muon_training::expected();
    const std::size_t n = sk::mpi::Environment::size();
    for (const sk::mpi::Options& options : mpi_test::ways) {
        for (const sk::DynamicPolicy& policy : muon_training::policies) {
            if (n % policy.shard_group(n) != 0) { continue; }
            CAPTURE(std::string(policy.name()));
            CAPTURE(options.overlap);
            CAPTURE(options.shared_memory);
            sk::mpi::run(
                muon_training::Mesh(n, 1, 1),
                [&](auto& rank) {
                    CHECK(muon_training::train(rank, policy, sk::HostProducts{},
                                               [](const auto& stream, const auto& work) { stream.submit(work); }) ==
                          expected);
                },
                {}, mpi_test::patient(options));
        }
    }
}

}  // namespace muon_test
