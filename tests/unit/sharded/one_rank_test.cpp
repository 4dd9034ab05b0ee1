// SPDX-License-Identifier: Apache-2.0
#include "unit/sharded/one_rank_cases.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace one_rank_test {

TEST_CASE("one rank alone works on summoned parameters, under every policy") {
    const auto check = [](auto& rank) {
        for (const auto& policy : one_rank::policies) {
            for (const std::string& wrong : one_rank::failures(rank, policy)) { FAIL_CHECK(wrong); }
        }
    };
    sk::self::run(sk::DeviceMesh<1>{}, check);
    for (const std::size_t ranks : {1U, 3U}) { sk::threads::run(toy::Flat{ranks}, check); }
}

TEST_CASE("summoned parameters: calls, memory and what a step says") {
    sk::threads::run(toy::Flat{2}, [](auto& rank) {
        auto a = toy::linear_layer<sk::FullShard>(rank, "a");
        auto b = toy::linear_layer<sk::FullShard>(rank, "b");
        auto c = toy::linear_layer<sk::FullShard>(rank, "c");
        sk::Model model{a, b, c};
        const std::uint64_t before = toy::calls(rank, sk::Verb::all_gather);
        {
            const auto full = sk::summon_full_params(model);
            const auto again = sk::summon_full_params(model);
            CHECK(toy::calls(rank, sk::Verb::all_gather) == before + 3);
            const auto first = a.unshard(sk::Gathers::never);
            const auto second = b.unshard();
            CHECK(second[toy::Weight{}][3] == 3);
            CHECK(toy::calls(rank, sk::Verb::all_gather) == before + 3);
        }
        CHECK(thrown_message<sk::UsageError>([&] {
                  static_cast<void>(a.unshard(sk::Gathers::never));
              }).starts_with("'a': this window would gather"));
        // A window that was open before keeps its slot, one that stays keeps what was summoned.
        auto slot = a.unshard();
        const double* const in_slot = slot[toy::Weight{}];
        auto full = std::optional(sk::summon_full_params(model));
        {
            const auto same = a.unshard(sk::Gathers::never);
            CHECK(same[toy::Weight{}].data() == in_slot);
        }
        const auto stays = b.unshard(sk::Gathers::never);
        full.reset();
        CHECK(stays[toy::Bias{}][6] == 106);
        CHECK_NOTHROW(static_cast<void>(b.unshard(sk::Gathers::never)));
        auto alone = sk::summon_full_params(model);
        auto& self = alone;
        alone = std::move(self);
        CHECK_NOTHROW(static_cast<void>(c.unshard(sk::Gathers::never)));
    });
}

}  // namespace one_rank_test
