// SPDX-License-Identifier: Apache-2.0
// The tests of several ranks on a GPU, on the stand-in: ranks are threads, and what a kernel does for its indices is
// a loop of the stream's. So a GPU that is lent for minutes does not show what is wrong with the tests.
#define SHARDKIT_TEST_ON_STANDIN

#include <string>

#include "../benchmarks/looped_kernels.hpp"
#include "trainer_kernels.hpp"
#include "unit/backend/nccl/given_kernels.hpp"
#include "unit/backend/nccl/gpu_ranks.hpp"

void preload_trainers() {
    using namespace shardkit;
    host_functions::launch_updates<rules::AdamWRule, Precision<e4m3, float>, Precision<block_int8, float>>();
}

#include "nccl_ranks_test.cu"
#include "nccl_trainers_test.cu"

namespace on_standin_test {

TEST_CASE("every kernel that ranks were given is listed in trainer_kernels.hpp or instantiate*.cu") {
    using namespace sk::nccl::detail;
    using sk::engine::Reduce;
    using sk::rules::AdamWRule;
    using Sums = KernelList<Reduce<sk::bf16, sk::bf16>, Reduce<sk::fp16, float>>;
    CHECK(host_functions::given_beside(trainer_kernels::All{} + Sums{} +
                                       training_kernels<sk::Precision<sk::e4m3, float>, AdamWRule>() +
                                       training_kernels<sk::Precision<sk::block_int8, float>, AdamWRule>() +
                                       training_kernels<sk::DefaultPrecision<float>, sk::rules::MuonRule>()) == "");
}
TEST_CASE("every case of ranks was run by a test of several ranks") {
    for (const auto& each : rank_processes::rank_cases()) {
        CAPTURE(std::string(each.first));
        CHECK(each.second.ran);
    }
}

}  // namespace on_standin_test
