// SPDX-License-Identifier: Apache-2.0
// Gathers of 8-bit codes on the NCCL engine: the bits of one thread, whenever each stream runs.
#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "paced_ranks.hpp"
#include "unit/sharded/coded_training.hpp"

namespace coded_gathers_test {

namespace {

namespace sk = shardkit;
using coded_training::Mesh;

template <class Code>
void check_training() {
    const std::vector<float> expected = coded_training::expected<Code>();
    for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}}) {
        for (const sk::DynamicPolicy& policy : coded_training::policies) {
            if (ranks == 3 && policy.name() == sk::HybridShard<2>::name) { continue; }
            for (const auto paces : paced_ranks::some_paces()) {
                CAPTURE(ranks);
                CAPTURE(std::string(policy.name()));
                std::vector<std::vector<float>> values(ranks);
                CHECK(paced_ranks::run(Mesh(ranks, 1, 1), paces, {}, [&](auto& rank, const auto&) {
                          values[rank.rank()] = coded_training::train<Code>(
                              rank, policy, [](const sk::gpu::TimelineRef& stream, const auto& work) {
                                  host_functions::LaunchedStream(stream).submit(work);
                              });
                      }) == "");
                for (const std::vector<float>& of_rank : values) { CHECK(of_rank == expected); }
            }
        }
    }
}

}  // namespace

TEST_CASE("nccl: steps with gathers of codes are one thread's to the bit, on every policy and pace") {
    check_training<sk::e4m3>();
    check_training<sk::block_int8>();
}

}  // namespace coded_gathers_test
