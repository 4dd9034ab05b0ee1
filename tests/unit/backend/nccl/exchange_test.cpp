// SPDX-License-Identifier: Apache-2.0
// Sums by exchange: the bits of the engine `threads`, from the size on that the options say.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>
#include <shardkit/step/plan_model.hpp>

#include "../verb_suite.hpp"
#include "gpu_ranks.hpp"
#include "paced_ranks.hpp"
#include "small_trainer_runs.hpp"
#include "test_size.hpp"

namespace exchange_test {

namespace {

namespace sk = shardkit;

/// A communicator whose sums are exchanges, which add in rank order.
struct Exchanged : gpu_ranks::Comm {
    explicit Exchanged(const gpu_ranks::Comm& comm) : gpu_ranks::Comm(comm) {}
    Exchanged split(std::size_t color, std::size_t key, std::string_view axes, const sk::Call& what) const {
        return Exchanged(gpu_ranks::Comm::split(color, key, axes, what));
    }
    Exchanged named(std::string_view axes) const { return Exchanged(gpu_ranks::Comm::named(axes)); }
};

}  // namespace

}  // namespace exchange_test

template <>
struct verb_values::Bench<exchange_test::Exchanged> : verb_values::Bench<gpu_ranks::Comm> {
    static constexpr verb_oracle::Order all_reduce_order = verb_oracle::Order::upwards;
};

namespace exchange_test {

namespace {

sk::nccl::Options exchanging(std::size_t from = 0) {
    sk::nccl::Options options = gpu_ranks::patient();
    options.exchange_sums_from = from;
    return options;
}

template <class F>
void on_each_world(const sk::nccl::Options& options, const F& f) {
    for (const standin::Pace pace : gpu_ranks::paces) {
        for (const std::size_t ranks : {2U, 3U, 5U, 8U}) {
            if (test_size::reduced() && ranks != 3) { continue; }
            CAPTURE(ranks);
            gpu_ranks::restart(pace);
            const auto outcomes = gpu_ranks::with_world(
                ranks, options, [&](const gpu_ranks::Comm& comm, sk::nccl::World&) { f(Exchanged(comm)); });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::order_violations().empty());
            CHECK(standin::frees_in_use().empty());
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("nccl: sums by exchange are those of rank order, as every verb and size", T, double, float,
                   sk::bf16, sk::fp16) {
    on_each_world(exchanging(), [](const Exchanged& world) { verb_suite::every_verb<T>(world); });
}

TEST_CASE("nccl: sums by exchange into another type, and in pieces of little staging memory, are the same") {
    const auto check = [](const Exchanged& world) {
        for (const std::size_t k : {1U, 15U, 16U, 17U, 255U, 256U, 257U, 3001U}) {
            verb_checks::check_reduce_scatter<sk::bf16, sk::bf16>(world, k, 1);
            verb_checks::check_reduce_scatter<sk::bf16, float>(world, k, 0);
            verb_checks::check_reduce_scatter<float, sk::bf16>(world, k, 3);
            verb_checks::check_all_reduce<sk::fp16, sk::fp16>(world, 3 * k, 1);
            verb_checks::check_all_reduce<sk::fp16, double>(world, 2 * k + 1, 0);
            verb_checks::check_all_reduce<float, float>(world, 3 * k, 1);
        }
    };
    sk::nccl::Options little = exchanging();
    little.staging_bytes = 1;  // the least that there is
    on_each_world(exchanging(), check);
    on_each_world(little, check);
}

TEST_CASE("nccl: sums are exchanges from the size on that the options say, of integers never") {
    constexpr std::size_t from = 4096;
    const auto reductions = [](sk::ReduceOp op, auto zero, std::size_t count) {
        using T = decltype(zero);
        gpu_ranks::restart();
        const auto outcomes =
            gpu_ranks::with_world(2, exchanging(from), [&](const gpu_ranks::Comm& world, sk::nccl::World&) {
                const auto stream = verb_checks::Bench<gpu_ranks::Comm>::stream(world);
                auto values = verb_checks::input<T>(world, world.rank(), count, 0);
                sk::all_reduce_in_place(world, op, values.span(), stream);
                sk::reduce_scatter_in_place(world, op, values.span(), stream);
                stream.synchronize();
            });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        return standin::calls("ncclAllReduce") + standin::calls("ncclReduceScatter");
    };
    const std::size_t none = reductions(sk::ReduceOp::tree_sum, float{}, 2);
    CHECK(reductions(sk::ReduceOp::sum, float{}, from / 4) == none);
    CHECK(reductions(sk::ReduceOp::sum, float{}, from / 4 - 2) == none + 4);
    CHECK(reductions(sk::ReduceOp::sum, sk::bf16{}, from / 2) == none);
    CHECK(reductions(sk::ReduceOp::sum, sk::bf16{}, from / 2 - 2) == none + 4);
    CHECK(reductions(sk::ReduceOp::sum, std::int32_t{}, from) == none + 4);
}

TEST_CASE("nccl: training with sums by exchange has the bits of threads, under every policy and pace") {
    const auto check = []<class T>(T /*element*/, std::size_t ranks, const small_trainer::Training& training) {
        const small_trainer::Mesh mesh(ranks, 1, 1);
        bool differs_without = false;
        for (const sk::DynamicPolicy& policy :
             {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
              sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
              sk::DynamicPolicy(sk::HybridShard<2>{})}) {
            if (ranks % 2 != 0 && policy.shard_group(ranks) == 2) { continue; }
            CAPTURE(std::string(policy.name()));
            const auto expected = small_trainer::on_threads<T>(mesh, policy, training);
            for (const small_trainer::Paces paces : paced_ranks::some_paces()) {
                std::string error;
                CHECK(small_trainer::on_nccl<T>(
                          mesh, policy, training, paces, error, [] {}, exchanging()) == expected);
                CHECK(error == "");
            }
            std::string error;
            differs_without =
                differs_without ||
                small_trainer::on_nccl<T>(mesh, policy, training, small_trainer::all_paces[0], error) != expected;
        }
        return differs_without;
    };
    CHECK(check(float{}, 3, {.microbatches = 2}));
    static_cast<void>(check(sk::bf16{}, 4, {.microbatches = 2}));  // whose few sums in fp32 may be exact
    if (!test_size::reduced()) { static_cast<void>(check(sk::fp16{}, 4, {.microbatches = 1, .loss_scale = true})); }
}

TEST_CASE("nccl: the plan has the traffic of sums by exchange, and the memory in which addends are received") {
    struct Weight : sk::Param<"weight", sk::bf16, 777> {};
    struct Large : sk::Param<"large", sk::bf16, 600'001> {};  // for which the staging memory of 1 MiB grows
    const auto sums = [](std::size_t from) {
        std::uint64_t moved = 0;
        gpu_ranks::restart();
        const auto body = [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            const small_trainer::Mesh mesh(4, 1, 1);
            sk::Rank<gpu_ranks::Engine, small_trainer::Mesh> rank(mesh, comm, {}, streams);
            using Half = sk::Precision<sk::bf16, sk::bf16, float, float>;
            using Layer = sk::Sharded<Weight, sk::FullShard, gpu_ranks::Engine, Half>;
            Layer layer(rank, "layer");
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 0.5}};
            for (int step = 0; step < 2; ++step) {
                rank.traffic().clear();
                sk::Accumulation accumulation{model};
                for (int pass = 0; pass < 2; ++pass) { const auto window = layer.unshard(); }
                accumulation.add(accumulation.gradients(layer));
                optimizer.step(std::move(accumulation), {.max_norm = 1.0});
            }
            const sk::Plan planned = sk::plan(model);
            for (const sk::Verb verb : {sk::Verb::all_gather, sk::Verb::reduce_scatter, sk::Verb::all_reduce}) {
                rank_checks::expect(planned.traffic.total(verb).moved == rank.traffic().total(verb).moved, name(verb),
                                    " moves ", rank.traffic().total(verb).moved.value, " bytes, planned ",
                                    planned.traffic.total(verb).moved.value);
            }
            rank_checks::expect(world.traits() == sk::nccl::traits_of(exchanging(from), 4),
                                "a plan before there is a World is the World's");
            const std::size_t staged =
                world.staging(streams.communication).size() + world.staging(streams.reduction).size();
            rank_checks::expect(planned.memory.staging.value == staged, "the plan has the memory of both streams");
            using LargeLayer = sk::Sharded<Large, sk::NoShard, gpu_ranks::Engine, Half>;
            LargeLayer large(rank, "large");
            const std::size_t grown =
                world.staging(streams.communication).size() + world.staging(streams.reduction).size();
            rank_checks::expect(grown > staged, "the memory grows");
            rank_checks::expect(sk::plan(sk::Model{layer, large}).memory.staging.value == grown,
                                "the plan has what it grows by");
            if (rank.rank() == 0) { moved = planned.traffic.total(sk::Verb::reduce_scatter).moved.value; }
        };
        CHECK(gpu_ranks::first_error(gpu_ranks::with_world(4, exchanging(from), body)) == "");
        return moved;
    };
    const std::uint64_t exchanged = sums(0);
    CHECK(exchanged > std::uint64_t{777} * 2 * 3 / 4);
    CHECK(sums(sk::engine::never_exchanged) == 2 * exchanged);
}

}  // namespace exchange_test
