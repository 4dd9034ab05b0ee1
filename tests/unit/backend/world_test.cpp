// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/world.hpp>

#include "rank_checks.hpp"

namespace world_test {

namespace {

using namespace shardkit;
using rank_checks::contains;
using threads::detail::Group;
using threads::detail::World;

/// The message that `rank` gets when it waits for `needed`.
PeerError error_of(World& world, std::size_t rank, std::vector<std::size_t> needed) {
    try {
        const threads::detail::GroupHandle handle = world.handle(*world.world_group(), rank, "dp");
        world.throw_peer_error(handle, {{.verb = Verb::barrier}, 0, {"train.cpp", 12}}, needed);
    } catch (const PeerError& error) { return error; }
}

}  // namespace

TEST_CASE("world: after a failure every group is poisoned, those made later from birth") {
    World world(3, {}, {});
    const auto pair = world.make_group({0, 1});
    CHECK_FALSE(pair->word().poisoned());
    world.rank_failed(2, "broken");
    for (const auto& group : {world.world_group(), pair, world.make_group({0, 1}), world.make_group({1})}) {
        CHECK(group->word().poisoned());
        for (std::size_t from = 0; from < group->size(); ++from) {
            for (std::size_t to = 0; to < group->size(); ++to) { CHECK(group->channel(from, to).word().poisoned()); }
        }
    }
    const PeerError error = error_of(world, 0, {0, 1});
    CHECK(error.rank() == 2);
    CHECK(contains(error.what(), "threads: barrier over dp at train.cpp:12: rank 2 failed: broken"));
}

TEST_CASE("world: a rank that returned poisons the calls and messages that need it, and no others") {
    World world(3, {}, {});
    const auto with = world.make_group({2, 0});
    const auto without = world.make_group({0, 1});
    world.rank_returned(2);
    CHECK(world.world_group()->word().poisoned());
    CHECK(with->word().poisoned());
    CHECK_FALSE(without->word().poisoned());
    CHECK_FALSE(world.make_group({0, 1})->word().poisoned());
    for (std::size_t from = 0; from < 3; ++from) {
        for (std::size_t to = 0; to < 3; ++to) {
            CHECK(world.world_group()->channel(from, to).word().poisoned() == (from == 2 || to == 2));
        }
    }
    CHECK(with->channel(0, 1).word().poisoned());
    CHECK_FALSE(with->channel(1, 1).word().poisoned());
    CHECK_FALSE(without->channel(0, 1).word().poisoned());
    const PeerError error = error_of(world, 0, {0, 1, 2});
    CHECK(error.rank() == 2);
    CHECK(contains(error.what(), "rank 2 returned before rank 0's barrier over dp"));
}

TEST_CASE("world: a group ends when another is made, once it has no handle and no call of a stream uses it") {
    World world(2, {}, {});
    auto pair = world.make_group({0, 1});
    const std::weak_ptr<Group> ends = pair;
    pair->begin_use();
    pair = world.make_group({0});
    pair = world.make_group({0});
    REQUIRE_FALSE(ends.expired());
    { const Group::EndUse used{*ends.lock()}; }
    pair = world.make_group({1});
    CHECK(ends.expired());
    CHECK(world.world_group()->size() == 2);
}

TEST_CASE("world: the first failure is the one that everybody hears of, also through a rank that it stopped") {
    World world(4, {}, {});
    world.rank_returned(3);
    const PeerError stopped = error_of(world, 1, {1, 3});
    world.rank_stopped(1, stopped);
    world.rank_failed(2, "later");
    const PeerError heard = error_of(world, 0, {0, 1});  // rank 0 does not need rank 3 itself
    CHECK(heard.rank() == 3);
    CHECK(contains(heard.what(), "rank 3 returned before rank 1's barrier over dp"));
}

TEST_CASE("world: a PeerError of the user's own making counts as the rank's own failure") {
    World world(2, {}, {});
    world.rank_stopped(0, PeerError("mine", "call", 7, "words", {}));
    const PeerError heard = error_of(world, 1, {0, 1});
    CHECK(heard.rank() == 0);
    CHECK(contains(heard.what(), "rank 0 failed: mine: call"));
}

}  // namespace world_test
