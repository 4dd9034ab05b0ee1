// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "test_size.hpp"
#include "unit/backend/overlaps.hpp"
#include "unit/backend/rank_checks.hpp"
#include "unit/sharded/trainer.hpp"

namespace sk = shardkit;

namespace failure_test {

using rank_checks::Kind;

namespace {

enum class Ending { exception, early_return };
struct ReturnNow {};

/// Collectives in the calls.
const sk::threads::LaunchOptions called{};

/// Trains on `mesh`; rank `victim` ends at its `position`-th verb. Returns what each rank threw.
std::vector<std::exception_ptr> train_and_fail(toy::Mesh mesh, const sk::DynamicPolicy& policy, std::size_t victim,
                                               std::size_t position, Ending ending,
                                               const sk::threads::LaunchOptions& launch, std::size_t& verbs) {
    toy::Hooks hooks;
    hooks.before_verb = [&](std::size_t rank, std::size_t at) {
        if (rank == 0 && at + 1 > verbs) { verbs = at + 1; }
        if (rank != victim || at != position) { return; }
        if (ending == Ending::early_return) { throw ReturnNow{}; }
        throw rank_checks::Planted("planted");
    };
    return sk::threads::launch_and_collect(
        mesh.size(),
        [&](const sk::Communicator& world) {
            sk::MeshRank<toy::Mesh> rank{
                mesh, world, {}, {{}, world.communication_stream(), world.reduction_stream()}};
            try {
                toy::train_rank<sk::Precision<float>>(
                    rank, policy, {.steps = 1, .samples = 4, .microbatches = 2, .clip = 1}, hooks);
            } catch (const ReturnNow&) {}
        },
        launch);
}

/// `shard_group`: ranks that gather together. After the last collective of the whole world a group goes on alone.
void check_every_position(std::size_t world, std::size_t shard_group, const sk::DynamicPolicy& policy,
                          const sk::threads::LaunchOptions& launch = called) {
    const toy::Mesh mesh(world, 1, 1);
    std::size_t verbs = 0;
    for (const auto& error : train_and_fail(mesh, policy, world, 0, Ending::exception, launch, verbs)) {
        REQUIRE(error == nullptr);
    }
    constexpr std::size_t reads = 3;        // the last positions, behind the norm: none but shard groups communicate
    REQUIRE(verbs == 2 * (5 + 2 * 5) + 5);  // two microbatches of five groups, forward and backward; the step; read
    const auto check = [&](std::size_t victim, std::size_t position, Ending ending) {
        CAPTURE(world);
        CAPTURE(victim);
        CAPTURE(position);
        CAPTURE(static_cast<int>(ending));
        std::size_t unused = 0;
        std::vector<std::exception_ptr> errors;
        const auto took = rank_checks::duration_of(
            [&] { errors = train_and_fail(mesh, policy, victim, position, ending, launch, unused); });
        CHECK(took < rank_checks::time_to_end);
        for (std::size_t r = 0; r < world; ++r) {
            const auto outcome = rank_checks::outcome(errors[r]);
            if (r == victim) {
                CHECK(outcome.kind == (ending == Ending::exception ? Kind::planted : Kind::none));
            } else if (position + reads >= verbs && r / shard_group != victim / shard_group &&
                       outcome.kind == Kind::none) {
                // This rank had nothing left to do with the victim; it may have been stopped or not.
            } else if (position + 1 == verbs && r / shard_group == victim / shard_group) {
                CHECK(outcome.kind == Kind::none);  // nothing collective was left to do
            } else {
                CHECK(outcome.kind == Kind::peer);
                CHECK(outcome.rank == victim);
                CHECK(outcome.text.find("rank " + std::to_string(victim)) != std::string::npos);
            }
        }
    };
    for (std::size_t victim = 0; victim < world; ++victim) {
        for (std::size_t position = 0; position < verbs; ++position) {
            // Of slow builds every other place, each rank another.
            if (test_size::reduced() && (position + victim) % 2 != 0 && position + 1 != verbs) { continue; }
            check(victim, position, Ending::exception);
            check(victim, position, Ending::early_return);
        }
    }
}

}  // namespace

TEST_CASE("a rank that throws or returns at any verb of a step ends all others with an error that names it") {
    SUBCASE("full_shard on 2") { check_every_position(2, 2, sk::DynamicPolicy(sk::FullShard{})); }
    SUBCASE("shard_optimizer on 2") { check_every_position(2, 2, sk::DynamicPolicy(sk::ShardOptimizer{})); }
    SUBCASE("full_shard on 4") { check_every_position(4, 4, sk::DynamicPolicy(sk::FullShard{})); }
    SUBCASE("hybrid_shard on 4") { check_every_position(4, 2, sk::DynamicPolicy(sk::HybridShard<2>{})); }
    SUBCASE("full_shard on 3, overlapped") {
        check_every_position(3, 3, sk::DynamicPolicy(sk::FullShard{}), rank_checks::on_threads);
    }
    SUBCASE("hybrid_shard on 4, overlapped") {
        check_every_position(4, 2, sk::DynamicPolicy(sk::HybridShard<2>{}), rank_checks::on_threads);
    }
}

TEST_CASE("so does a rank that ends while the others make their containers") {
    const auto check = [](std::size_t victim, Ending ending) {
        CAPTURE(victim);
        CAPTURE(static_cast<int>(ending));
        const toy::Mesh mesh(4, 1, 1);
        std::vector<std::exception_ptr> errors;
        const auto took = rank_checks::duration_of([&] {
            errors = sk::threads::launch_and_collect(4, [&](const sk::Communicator& world) {
                sk::MeshRank<toy::Mesh> rank{mesh, world};
                if (rank.rank() == victim) {
                    if (ending == Ending::early_return) { return; }
                    throw rank_checks::Planted("planted");
                }
                const toy::Model<sk::DynamicPolicy, sk::Precision<float>> model(
                    rank, sk::DynamicPolicy(sk::HybridShard<2>{}));
            });
        });
        CHECK(took < rank_checks::time_to_end);
        for (std::size_t r = 0; r < 4; ++r) {
            const auto outcome = rank_checks::outcome(errors[r]);
            if (r == victim) {
                CHECK(outcome.kind == (ending == Ending::exception ? Kind::planted : Kind::none));
            } else {
                CHECK(outcome.kind == Kind::peer);
                CHECK(outcome.rank == victim);
                CHECK(rank_checks::contains(outcome.text, "rank " + std::to_string(victim)));
            }
        }
    };
    for (const std::size_t victim : {0U, 1U, 2U, 3U}) {
        check(victim, Ending::exception);
        check(victim, Ending::early_return);
    }
}

}  // namespace failure_test
