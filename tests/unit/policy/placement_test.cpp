// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include <doctest/doctest.h>

#include <shardkit/policy/policy_values.hpp>

#include "../thrown_message.hpp"

namespace placement_test {

namespace {

using enum shardkit::Placement;
using shardkit::rules::transition;
using shardkit::rules::Transition;

// The design's table, whole.
static_assert(transition(sharded, replicated) == Transition::all_gather);
static_assert(transition(partial, sharded) == Transition::reduce_scatter);
static_assert(transition(partial, replicated) == Transition::all_reduce);
static_assert(transition(replicated, sharded) == Transition::slice);
static_assert(transition(replicated, replicated) == Transition::none);
static_assert(transition(sharded, sharded) == Transition::none);
static_assert(transition(partial, partial) == Transition::none);

static_assert(name(replicated) == "replicated" && name(sharded) == "sharded" && name(partial) == "partial");

}  // namespace

TEST_CASE("transition: nothing becomes an addend again") {
    for (const auto from : {replicated, sharded}) {
        CHECK_INVALID_ARGUMENT(transition(from, partial), "placement: a value cannot become partial");
    }
}

TEST_CASE("transition: the table at run time") {
    CHECK(transition(sharded, replicated) == Transition::all_gather);
    CHECK(transition(partial, sharded) == Transition::reduce_scatter);
    CHECK(transition(partial, replicated) == Transition::all_reduce);
    CHECK(transition(replicated, sharded) == Transition::slice);
    CHECK(transition(partial, partial) == Transition::none);
}

}  // namespace placement_test
