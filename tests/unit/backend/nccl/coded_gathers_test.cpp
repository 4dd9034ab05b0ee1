// SPDX-License-Identifier: Apache-2.0
// Gathers of 8-bit codes on the NCCL engine: the bits of one thread, whenever each stream runs.
#include <doctest/doctest.h>

#include "paced_ranks.hpp"
#include "unit/sharded/coded_training.hpp"

namespace coded_gathers_test {

namespace {

template <class Code>
void check_training() {
    paced_ranks::check_training(coded_training::expected<Code>(), coded_training::policies,
                                [](auto& rank, const auto& policy) {
                                    return coded_training::train<Code>(rank, policy, paced_ranks::submit);
                                });
}

}  // namespace

TEST_CASE("nccl: steps with gathers of codes are one thread's to the bit, on every policy and pace") {
    check_training<shardkit::e4m3>();
    check_training<shardkit::block_int8>();
}

}  // namespace coded_gathers_test
