// SPDX-License-Identifier: Apache-2.0
// The tests of several ranks on a GPU, on the stand-in: ranks are threads, and what a kernel does for its indices is
// a loop of the stream's. So a GPU that is lent for minutes does not show what is wrong with the tests.
#define SHARDKIT_TEST_ON_STANDIN

#include <string>

#include "../benchmarks/looped_kernels.hpp"
#include "instantiated.hpp"
#include "trainer_kernels.hpp"
#include "unit/backend/nccl/given_kernels.hpp"
#include "unit/backend/nccl/gpu_ranks.hpp"

// As in instantiate_kernels_for.cu.
template struct instantiated::Launched<instantiated::Trainers>;
void preload_trainers() {}

#include "nccl_ranks_test.cu"
#include "nccl_trainers_test.cu"

namespace on_standin_test {

TEST_CASE("every kernel that ranks were given is listed in trainer_kernels.hpp or instantiated.hpp") {
    CHECK(host_functions::given_beside(trainer_kernels::All{} + instantiated::Sums{} + instantiated::Trainers{}) ==
          "");
}
TEST_CASE("every case of ranks was run by a test of several ranks") {
    for (const auto& each : rank_processes::rank_cases()) {
        CAPTURE(std::string(each.first));
        CHECK(each.second.ran);
    }
}

}  // namespace on_standin_test
