// SPDX-License-Identifier: Apache-2.0
// What every mutant of a wait in context_parallel/ must fail: attention over cp on the NCCL engine over the CUDA
// stand-in, whose streams work as early or as late as their order allows.
#include <cstdio>

#include "unit/backend/nccl/attention_pass.hpp"

int main() {
    for (const std::size_t cp : {2U, 3U, 4U}) {
        const std::string wrong = attention_pass::difference<shardkit::cp::RingExchange>(cp);
        if (wrong.empty()) { continue; }
        std::printf("cp = %zu: %s\n", cp, wrong.c_str());
        return 1;
    }
    std::puts("the ring agrees with threads at every pace");
}
