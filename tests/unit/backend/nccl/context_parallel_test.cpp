// SPDX-License-Identifier: Apache-2.0
// Attention over cp on the NCCL engine over the stand-in: the bits of the threads engine, whenever each stream works.
#include <cstddef>

#include <doctest/doctest.h>

#include "attention_pass.hpp"

namespace context_parallel_test {

TEST_CASE("nccl: attention over cp is that of threads, bit for bit, in a ring and gathered, at every pace") {
    for (const std::size_t cp : {1U, 2U, 3U, 4U}) {
        CAPTURE(cp);
        CHECK(attention_pass::difference<shardkit::cp::RingExchange>(cp) == "");
        CHECK(attention_pass::difference<shardkit::cp::GatherExchange>(cp) == "");
    }
}

}  // namespace context_parallel_test
