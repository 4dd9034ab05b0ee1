// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>

#include "unit/sharded/coded_training.hpp"
#include "with_world.hpp"

namespace coded_gathers_test {

namespace sk = shardkit;

template <class Code>
void check() {
    const std::vector<float> expected = coded_training::expected<Code>();
    const std::size_t n = sk::mpi::Environment::size();
    for (const sk::mpi::Options& options : mpi_test::ways) {
        for (const sk::DynamicPolicy& policy : coded_training::policies) {
            if (n % 2 != 0 && policy.name() == sk::HybridShard<2>::name) { continue; }
            CAPTURE(std::string(policy.name()));
            CAPTURE(options.overlap);
            CAPTURE(options.shared_memory);
            sk::mpi::run(
                coded_training::Mesh(n, 1, 1),
                [&](auto& rank) {
                    CHECK(coded_training::train<Code>(rank, policy, [](const auto& stream, const auto& work) {
                              stream.submit(work);
                          }) == expected);
                },
                {}, mpi_test::patient(options));
        }
    }
}

TEST_CASE(
    "gathers of codes are one thread's to the bit, through shared memory, messages and threads of the engine's own") {
    check<sk::e4m3>();
    check<sk::block_int8>();
}

}  // namespace coded_gathers_test
