// SPDX-License-Identifier: Apache-2.0
// How sums are made: by exchange, with the bits of the engine `threads`, from the size on that the options say;
// 16-bit ones by NCCL's kernels for symmetric windows, where it has them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/policies.hpp>

#include "../verb_suite.hpp"
#include "gpu_ranks.hpp"
#include "paced_ranks.hpp"
#include "small_trainer_runs.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/backend/cuda/typed_bytes.hpp"

namespace exchange_test {

namespace {

namespace sk = shardkit;

/// A communicator whose sums are exchanges, which add in rank order.
struct Exchanged : gpu_ranks::Comm {
    explicit Exchanged(const gpu_ranks::Comm& comm) : gpu_ranks::Comm(comm) {}
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

sk::nccl::Options summing(sk::nccl::Sums sums) {
    sk::nccl::Options options = gpu_ranks::patient();
    options.sums = sums;
    if (sums == sk::nccl::Sums::by_nccl) { options.registration = sk::nccl::Registration::windows; }
    return options;
}
sk::nccl::Options exchanging(std::size_t from = 0) { return summing(sk::nccl::Sums::exchanged_from(from)); }
/// The stand-in with an NCCL that has the kernels for symmetric windows, unless a test says otherwise.
void restart_for_windows(standin::Pace pace = standin::Pace::lazy) {
    gpu_ranks::restart(pace);
    standin::set_nccl_version(sk::nccl::configured_calls_version);
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

TEST_CASE_TEMPLATE("nccl: sums by exchange are those of rank order, as every verb and size", T, float, sk::bf16) {
    on_each_world(exchanging(), [](const Exchanged& world) { verb_suite::every_verb<T>(world); });
}

TEST_CASE("nccl: sums by exchange into another type, and in pieces of little staging memory, are the same") {
    const auto check = [](const Exchanged& world) {
        for (const std::size_t k : {1U, 15U, 16U, 17U, 255U, 256U, 257U, 3001U}) {
            if (test_size::reduced() && k != 17 && k != 257) { continue; }
            verb_checks::check_reduce_scatter<sk::bf16, sk::bf16>(world, k, 1);
            verb_checks::check_reduce_scatter<sk::bf16, float>(world, k, 0);
            verb_checks::check_reduce_scatter<float, sk::bf16>(world, k, 3);
            verb_checks::check_all_reduce<sk::fp16, sk::fp16>(world, 3 * k, 1);
            verb_checks::check_all_reduce<sk::fp16, double>(world, 2 * k + 1, 0);
            verb_checks::check_reduce_scatter<double, double>(world, k, 1);
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
            for (const small_trainer::Paces paces : paced_ranks::paces_in_turn()) {
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
    const auto sums = [](sk::nccl::Sums made) {
        std::uint64_t moved = 0;
        restart_for_windows();
        const auto body = [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            const small_trainer::Mesh mesh(4, 1, 1);
            sk::MeshRank<small_trainer::Mesh> rank(mesh, comm, {}, streams);
            using Half = sk::Precision<sk::bf16, sk::bf16, float, float>;
            using Layer = sk::Sharded<Weight, sk::FullShard, Half>;
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
            rank_checks::expect(world.traits() == sk::nccl::traits_of(summing(made), 4),
                                "a plan before there is a World is the World's");
            const std::size_t staged = world.state().staging(sk::gpu::TimelineRef(streams.communication)).size() +
                                       world.state().staging(sk::gpu::TimelineRef(streams.reduction)).size();
            rank_checks::expect(planned.memory.staging.value == staged, "the plan has the memory of both streams");
            using LargeLayer = sk::Sharded<Large, sk::NoShard, Half>;
            LargeLayer large(rank, "large");
            const std::size_t grown = world.state().staging(sk::gpu::TimelineRef(streams.communication)).size() +
                                      world.state().staging(sk::gpu::TimelineRef(streams.reduction)).size();
            rank_checks::expect(grown > staged, "the memory grows");
            rank_checks::expect(sk::plan(sk::Model{layer, large}).memory.staging.value == grown,
                                "the plan has what it grows by");
            if (rank.rank() == 0) { moved = planned.traffic.total(sk::Verb::reduce_scatter).moved.value; }
        };
        CHECK(gpu_ranks::first_error(gpu_ranks::with_world(4, summing(made), body)) == "");
        return moved;
    };
    const std::uint64_t exchanged = sums(sk::nccl::Sums::exchanged);
    CHECK(exchanged > std::uint64_t{777} * 2 * 3 / 4);
    CHECK(sums(sk::nccl::Sums::widened) == 2 * exchanged);
    CHECK(sums(sk::nccl::Sums::by_nccl) == exchanged);
}

namespace {

/// What rank r gives as element i: integers whose sums are exact in fp32 and not in 16 bits.
float addend(std::size_t rank, std::size_t i) { return i % 7 == rank ? 256 : static_cast<float>((i + rank) % 3); }
float sum_of(std::size_t ranks, std::size_t i) {
    float sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) { sum += addend(r, i); }
    return sum;
}

/// Sums of 16-bit elements as verbs make them, in memory of the World's or, `outside`, of the program's: those of
/// fp32, rounded to `Rounded`.
template <class In, class Out, class Rounded>
void check_sums(const gpu_ranks::Comm& comm, std::size_t k, bool outside = false) {
    const auto stream = verb_values::Bench<gpu_ranks::Comm>::stream(comm);
    const std::size_t ranks = comm.size();
    const std::size_t n = ranks * k;
    auto memory = comm.template buffer<In>(n);
    const auto own = on_device<In>(outside ? n : 0, sk::gpu::StreamRef(stream.native()));
    const std::span<In> in = outside ? own.span() : memory.span();
    auto out = comm.template buffer<Out>(n);
    std::vector<In> addends(n);
    for (std::size_t i = 0; i < n; ++i) { addends[i] = In(addend(comm.rank(), i)); }
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
        sk::gpu::detail::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.native()), "copy");
    };
    copy(in.data(), addends.data(), n * sizeof(In));
    const auto expect = [&](std::size_t first, std::size_t count, std::string_view verb) {
        std::vector<Out> given(count);
        stream.synchronize();  // before the copy is queued: should this throw, nothing writes there later
        copy(given.data(), out.data(), count * sizeof(Out));
        stream.synchronize();
        for (std::size_t i = 0; i < count; ++i) {
            const auto expected = static_cast<float>(Rounded(sum_of(ranks, first + i)));
            rank_checks::expect(static_cast<float>(given[i]) == expected, verb, ": element ", first + i, " is ",
                                static_cast<float>(given[i]), ", expected ", expected);
        }
    };
    sk::reduce_scatter(comm, sk::ReduceOp::sum, std::span<const In>(in), out.span().first(k), stream);
    expect(comm.rank() * k, k, "reduce_scatter");
    sk::all_reduce(comm, sk::ReduceOp::sum, std::span<const In>(in), out.span(), stream);
    expect(0, n, "all_reduce");
}

std::size_t narrow_calls() {
    return standin::calls("ncclReduceScatterConfig") + standin::calls("ncclAllReduceConfig");
}

/// What the process writes to its error stream meanwhile.
template <class F>
std::string said_on_stderr(const F& f) {
    const temporary_folder::Folder folder;
    const std::string path = folder.file("stderr");
    std::fflush(stderr);
    const int before = dup(STDERR_FILENO);
    std::FILE* const file = std::fopen(path.c_str(), "w");
    REQUIRE(file != nullptr);
    dup2(fileno(file), STDERR_FILENO);
    f();
    std::fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    std::fclose(file);
    std::ifstream read(path);
    return {std::istreambuf_iterator<char>(read), {}};
}

}  // namespace

TEST_CASE(
    "nccl: 16-bit sums by NCCL are those of fp32, rounded once, out of the World's memory; others are widened") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        for (const std::size_t ranks : {2U, 3U, 5U}) {
            restart_for_windows(pace);
            sk::nccl::Options options = summing(sk::nccl::Sums::by_nccl);
            if (ranks == 3) { options.staging_bytes = 1; }
            const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const gpu_ranks::Comm& comm, auto&) {
                rank_checks::expect(comm.traits().adds_16_bits, "NCCL adds");
                for (const std::size_t k : {1U, 17U, 301U}) {
                    check_sums<sk::bf16, sk::bf16, sk::bf16>(comm, k);
                    check_sums<sk::bf16, float, sk::bf16>(comm, k);
                    check_sums<sk::fp16, float, sk::fp16>(comm, k);
                    check_sums<sk::bf16, float, float>(comm, k, true);
                    check_sums<sk::bf16, sk::fp16, sk::fp16>(comm, k);
                    check_sums<float, float, float>(comm, k);
                }
                const gpu_ranks::Comm pair = sk::split(comm, comm.rank() / 2, comm.rank(), "pair");
                check_sums<sk::bf16, float, sk::bf16>(pair, pair.size() > 1 ? 9 : 0);
                comm.separate_reductions();
                auto values = comm.template buffer<sk::bf16>(8);
                const auto streams = comm.streams();
                const std::size_t before = narrow_calls();
                sk::all_reduce_in_place(comm, sk::ReduceOp::sum, values.span(), streams.reduction);
                streams.synchronize();
                rank_checks::expect(narrow_calls() > before, "NCCL adds on the stream of reductions too");
            });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::order_violations().empty());
            CHECK(standin::frees_in_use().empty());
            CHECK(standin::uneven_windows().empty());
            CHECK(standin::live() == standin::Live{});
        }
    }
}

TEST_CASE("nccl: where NCCL refuses 16-bit sums, on all ranks or on one, all of them widen, and one says so once") {
    for (const bool one : {false, true}) {
        CAPTURE(one);
        restart_for_windows();
        if (one) {
            standin::fail_next("ncclReduceScatterConfig", ncclInvalidArgument, 1);
        } else {
            standin::set_symmetric_kernels(false);
        }
        std::vector<gpu_ranks::Outcome> outcomes;
        const std::string said = said_on_stderr([&] {
            outcomes = gpu_ranks::with_world(
                3, summing(sk::nccl::Sums::by_nccl), [&](const gpu_ranks::Comm& comm, sk::nccl::World&) {
                    rank_checks::expect(!comm.traits().adds_16_bits, "NCCL does not add");
                    check_sums<sk::bf16, float, float>(comm, 17);
                    if (!one) { static_cast<void>(sk::split(comm, 0, comm.rank(), "again")); }
                    comm.separate_reductions();
                });
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::calls("ncclReduceScatterConfig") == (one ? 3 : 6));  // those that ask
        CHECK(standin::calls("ncclAllReduceConfig") == 0);
        CHECK(standin::live() == standin::Live{});
        CHECK(said.find("shardkit: nccl: sums of 16-bit elements over world travel as fp32: ") == 0);
        CHECK(said.find('\n') == said.size() - 1);
        CHECK(said.find(one ? "rank 1 of them cannot" : "algSelection names only symmetric kernel") !=
              std::string::npos);
    }
}

TEST_CASE("nccl: training with 16-bit sums by NCCL is close to threads, and the same at every pace") {
    const small_trainer::Mesh mesh(4, 1, 1);
    for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                            sk::DynamicPolicy(sk::HybridShard<2>{})}) {
        CAPTURE(std::string(policy.name()));
        const small_trainer::Training training{.microbatches = 2};
        const auto expected = small_trainer::on_threads<sk::bf16>(mesh, policy, training);
        std::vector<small_trainer::Outcome> first;
        for (const small_trainer::Paces paces : paced_ranks::some_paces()) {
            std::string error;
            const auto given = small_trainer::on_nccl<sk::bf16>(
                mesh, policy, training, paces, error, [] {}, summing(sk::nccl::Sums::by_nccl));
            CHECK(error == "");
            if (first.empty()) { first = given; }
            CHECK(given == first);
            for (std::size_t r = 0; r < given.size(); ++r) {
                CHECK(small_trainer::close(given[r], expected[r], 1e-2));
            }
        }
    }
}

}  // namespace exchange_test
