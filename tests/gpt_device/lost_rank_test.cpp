// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/native.hpp>

#include "device_training.hpp"

namespace lost_rank_test {

using namespace device_training;

TEST_CASE("gpt.device: a rank that dies in a step ends the others' training, who train on without it") {
    Options options = test::base();
    options.batch = 12;
    options.steps = 5;
    options.dtype = Dtype::fp64;
    options.policy = {program::PolicyKind::full_shard};
    options.mesh = {2, 1, 1};
    const std::vector<double> expected = test::run(options).losses;
    for (const Steps how : {Steps::plain, Steps::captured}) {
        CAPTURE(static_cast<int>(how));
        gpu_ranks::restart();
        const sk::nccl::UniqueId id = sk::nccl::UniqueId::create();
        std::array<std::vector<double>, 3> losses;
        const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
            sk::nccl::Options survivable = gpu_ranks::impatient();
            survivable.survivable = true;
            sk::nccl::World world(id, 3, rank, survivable);
            Options of_three = options;
            of_three.mesh = {3, 1, 1};
            const auto dies = [&](std::size_t step, double) {
                if (rank != 1 || step != 2) { return; }
                standin::kill_rank(sk::nccl::native(gpu_ranks::Comm(world)));
                throw rank_checks::Planted("gone");
            };
            if (rank == 1) {
                static_cast<void>(train_in<double>(world, of_three, how, dies));
                return;
            }
            CHECK_THROWS_AS(train_in<double>(world, of_three, how, dies), sk::CommError);
            const std::array<std::size_t, 1> lost{1};
            sk::nccl::World left(sk::nccl::Survivors{world, lost}, gpu_ranks::patient());
            losses[rank] = train_in<double>(left, options, how, [](std::size_t, double) {}).losses;
            left.finish();
        });
        CHECK(outcomes[0].text == "");
        CHECK(outcomes[1].kind == rank_checks::Kind::planted);
        CHECK(outcomes[2].text == "");
        for (const std::size_t rank : {0U, 2U}) { CHECK(worst(losses[rank], expected) <= 1e-12); }
        CHECK(standin::hangs() == 0);
        CHECK(standin::live() == standin::Live{});
    }
}

}  // namespace lost_rank_test
