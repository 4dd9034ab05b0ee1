// SPDX-License-Identifier: Apache-2.0
// What streams were given may still use what an optimizer, a loss scale, a group, a window or a schedule frees at its
// end, and what the next step takes: they are waited for.

#include <optional>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "lifetimes.hpp"

namespace lifetime_test {

namespace {

namespace sk = shardkit;

using lifetimes::freed;
using lifetimes::LazyRank;

struct Weight : sk::Param<"weight", float, 40> {};

template <class Policy>
void check_optimizer() {
    LazyRank rank;
    sk::Sharded<Weight, Policy> layer{rank, "layer"};
    layer.initialize([](auto, auto, std::size_t i) { return static_cast<double>(i % 5); });
    sk::Model model{layer};
    {
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        sk::Accumulation accumulation{model};
        accumulation.add(accumulation.gradients(layer));
        optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
        REQUIRE(!rank.compute.idle());
        freed.buffers = 0;
    }
    CHECK(rank.compute.idle());
    CHECK(freed.buffers > 2);  // the states, and tables beside them
    CHECK(freed.in_use == 0);
}

/// Reads the loss scale when the stream gets there.
void submit_read(const LazyRank& rank, const sk::LossScale& loss_scale, double& seen) {
    rank.compute_stream().submit([state = loss_scale.data(), &seen] { seen = state->value(); });
}

}  // namespace

TEST_CASE("what ends waits for what the streams were given with it, and so does what takes its memory") {
    for (const lifetimes::Check& each : lifetimes::checks) {
        CAPTURE(each.what);
        CHECK(each.wrong() == "");
    }
}

TEST_CASE("an optimizer's end waits for its steps") {
    check_optimizer<sk::NoShard>();
    check_optimizer<sk::FullShard>();
}

TEST_CASE("an optimizer's end waits for a learning rate that was set") {
    LazyRank rank;
    sk::Sharded<Weight, sk::NoShard> layer{rank, "layer"};
    sk::Model model{layer};
    {
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        optimizer.set_learning_rate(0.25);
        REQUIRE(!rank.compute.idle());
    }
    CHECK(rank.compute.idle());
    CHECK(freed.in_use == 0);
}

TEST_CASE("a loss scale's end waits for the kernels that read it") {
    LazyRank rank;
    double seen = 0;
    {
        const sk::LossScale loss_scale{rank, {.initial = 4}};
        submit_read(rank, loss_scale, seen);
        CHECK(seen == 0);
    }
    CHECK(seen == 4);
    CHECK(freed.in_use == 0);
}

TEST_CASE("a loss scale that was moved from waits for nothing, one that was assigned to for its old memory") {
    LazyRank rank;
    std::optional<sk::LossScale> first(std::in_place, rank, sk::LossScaleOptions{.initial = 4});
    std::optional<sk::LossScale> second(std::in_place, rank, sk::LossScaleOptions{.initial = 8});
    double seen_first = 0;
    double seen_second = 0;
    submit_read(rank, *first, seen_first);
    submit_read(rank, *second, seen_second);

    sk::LossScale moved(std::move(*first));
    first.reset();
    CHECK(!rank.compute.idle());

    moved = std::move(*second);
    second.reset();
    CHECK(freed.in_use == 0);
    CHECK(seen_first == 4);
    CHECK(seen_second == 8);
    CHECK(moved.value() == 8);
}

}  // namespace lifetime_test
