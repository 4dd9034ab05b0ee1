// SPDX-License-Identifier: Apache-2.0
// Training steps as CUDA graphs, one graph per rank: launched, they compute what the same number of plain steps
// does on threads, whenever each stream runs.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>

#include "alone.hpp"
#include "captured_step.hpp"
#include "gpu_ranks.hpp"
#include "largest_difference.hpp"
#include "small_trainer_runs.hpp"
#include "step_trainer.hpp"
#include "test_size.hpp"

namespace graph_test {

namespace {

namespace sk = shardkit;
using small_trainer::Mesh;
using small_trainer::Paces;
using step_trainer::CapturedStep;
using step_trainer::Outcome;
using step_trainer::Settings;
using NcclRank = sk::MeshRank<Mesh>;

template <class T>
std::vector<Outcome> on_threads(std::size_t ranks, const sk::DynamicPolicy& policy, const Settings& settings,
                                std::string_view plan) {
    std::vector<Outcome> outcomes(ranks);
    sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
        outcomes[rank.rank()] = step_trainer::follow<T>(rank, policy, settings, plan, step_trainer::Repeat{});
    });
    return outcomes;
}

/// To a few roundings: NCCL adds in another order than threads do.
bool close(const Outcome& given, const Outcome& expected, double bound) {
    return largest_difference(given.parameters, expected.parameters) <= bound &&
           std::ranges::equal(given.log, expected.log, [&](double x, double y) { return agrees(x, y, bound); });
}

/// f(rank, streams) on every rank. Empty when every rank ended well, and the stand-in saw nothing that would break on
/// a GPU.
template <class F>
std::string on_nccl(std::size_t ranks, Paces paces, const F& f) {
    std::string error = paced_ranks::run(Mesh(ranks, 1, 1), paces, {}, f);
    if (standin::live().executable_graphs != 0) { error += "a graph is left"; }
    return error;
}

template <class T>
void check(std::size_t ranks, const sk::DynamicPolicy& policy, const Settings& settings, std::string_view plan) {
    CAPTURE(policy.name());
    CAPTURE(ranks);
    CAPTURE(settings.microbatches);
    CAPTURE(settings.clips);
    CAPTURE(settings.scales_loss);
    CAPTURE(plan);
    const std::vector<Outcome> expected = on_threads<T>(ranks, policy, settings, plan);
    REQUIRE(!expected[0].log.empty());
    for (const Paces paces : paced_ranks::paces_in_turn()) {
        CAPTURE(static_cast<int>(paces.compute));
        CAPTURE(static_cast<int>(paces.communication));
        std::vector<Outcome> given(ranks);
        const std::string error = on_nccl(ranks, paces, [&](NcclRank& rank, const auto& streams) {
            given[rank.rank()] = step_trainer::follow<T>(
                rank, policy, settings, plan, [&](const auto& step) { return CapturedStep(streams, step); });
        });
        CHECK(error == "");
        for (std::size_t r = 0; r < ranks; ++r) { CHECK(close(given[r], expected[r], sizeof(T) == 2 ? 1e-2 : 1e-4)); }
    }
}

template <class T>
void check_policies(std::size_t ranks, const Settings& settings, std::string_view plan) {
    check<T>(ranks, sk::DynamicPolicy(sk::NoShard{}), settings, plan);
    check<T>(ranks, sk::DynamicPolicy(sk::ShardOptimizer{}), settings, plan);
    check<T>(ranks, sk::DynamicPolicy(sk::ShardGradOp{}), settings, plan);
    check<T>(ranks, sk::DynamicPolicy(sk::FullShard{}), settings, plan);
    if (ranks % 2 == 0) {
        check<T>(ranks, sk::DynamicPolicy(sk::HybridShard<2>{}), settings, plan);
        check<T>(ranks, sk::DynamicPolicy(sk::HybridOptimizer<2>{}), settings, plan);
        check<T>(ranks, sk::DynamicPolicy(sk::SecondaryShard<2>{}), settings, plan);
    }
}

/// Policies that differ in what a graph has of them: nothing to gather, a gather by the update, one for each window,
/// and a second shard of which windows are made.
template <class T>
void check_kinds(std::size_t ranks, const Settings& settings, std::string_view plan) {
    check<T>(ranks, sk::DynamicPolicy(sk::NoShard{}), settings, plan);
    check<T>(ranks, sk::DynamicPolicy(sk::ShardOptimizer{}), settings, plan);
    check<T>(ranks, sk::DynamicPolicy(sk::FullShard{}), settings, plan);
    if (ranks % 2 == 0) { check<T>(ranks, sk::DynamicPolicy(sk::SecondaryShard<2>{}), settings, plan); }
}

}  // namespace

TEST_CASE("nccl: a capture gathers even where the copies are fresh when it begins") {
    check_policies<float>(2, {.microbatches = 1}, "evCLL");
    check_policies<float>(2, {.microbatches = 1}, "eCLvLvLe");
}

TEST_CASE("nccl: launches of a captured step are steps, plain ones before and between, on every policy and pace") {
    for (const std::size_t ranks : {1U, 2U, 3U}) {
        if (test_size::reduced() && ranks == 2) { continue; }
        check_policies<float>(ranks, {.microbatches = 1}, "eCLLeLeeLL");
        check_policies<float>(ranks, {.microbatches = 2}, "eeCLeLLe");
    }
}

TEST_CASE("nccl: a captured step without clipping, and in bf16 with fp32 master and reduction") {
    check_kinds<float>(2, {.microbatches = 2, .clips = false}, "eCLLeL");
    check<sk::bf16>(2, sk::DynamicPolicy(sk::ShardOptimizer{}), {.microbatches = 2}, "eCLLeL");
    check<sk::bf16>(2, sk::DynamicPolicy(sk::FullShard{}), {.microbatches = 2}, "eCLLeL");
}

TEST_CASE("nccl: plain steps go on after a capture before its graph is launched, and after a second capture") {
    check_kinds<float>(2, {.microbatches = 1}, "eCeeLeCeLCLL");
}

TEST_CASE("nccl: a capture that an exception ends has done nothing") {
    check_kinds<float>(2, {.microbatches = 2}, "eDeeCDLDeL");
}

TEST_CASE("nccl: launches and captures come after the reductions of abandoned steps") {
    check_kinds<float>(2, {.microbatches = 1}, "eCaLaeaCeaL");
}

TEST_CASE("nccl: evaluations before a capture and between launches see the parameters of that moment") {
    for (const std::size_t ranks : {2U, 4U}) {
        if (test_size::reduced() && ranks == 4) { continue; }
        check_kinds<float>(ranks, {.microbatches = 2}, "evCvLvLveLve");
    }
}

TEST_CASE("nccl: a step with a norm that is captured before any plain one is an error: it would take memory") {
    const std::string error = on_nccl(2, small_trainer::all_paces[0], [](NcclRank& rank, const auto& streams) {
        step_trainer::Trainer<float, NcclRank> trainer(rank, sk::DynamicPolicy(sk::FullShard{}), {});
        const CapturedStep graph(streams, [&] { trainer.step(); });
    });
    CHECK(rank_checks::contains(error, "cudaErrorStreamCaptureUnsupported"));
}

TEST_CASE("nccl: a learning rate set between launches takes effect in the next one") {
    check_kinds<float>(2, {.microbatches = 1}, "eCLrLLrLreL");
    const auto same_rate = on_threads<float>(2, sk::DynamicPolicy(sk::FullShard{}), {}, "eeee");
    const auto lower_rate = on_threads<float>(2, sk::DynamicPolicy(sk::FullShard{}), {}, "eere");
    CHECK(!step_trainer::same(same_rate[0], lower_rate[0]));
}

TEST_CASE("nccl: the loss scale adapts inside the graph, and steps that overflow are skipped there") {
    check_kinds<float>(3, {.microbatches = 2, .scales_loss = true}, "eCLLLLLeLL");
    const Settings fp16{.clips = false, .scales_loss = true};
    check<sk::fp16>(2, sk::DynamicPolicy(sk::ShardOptimizer{}), fp16, "eCLLLLLeLL");
    check<sk::fp16>(2, sk::DynamicPolicy(sk::FullShard{}), fp16, "eCLLLLLeLL");
    const auto expected = on_threads<float>(2, sk::DynamicPolicy(sk::FullShard{}), {.scales_loss = true}, "eeeeee");
    const std::vector<double>& log = expected[0].log;
    std::vector<double> scales;
    for (std::size_t step = 0; 2 * step < log.size(); ++step) { scales.push_back(log[2 * step + 1]); }
    CHECK(scales == std::vector<double>{4, 8, 16, 8, 16, 8});
}

TEST_CASE("nccl: a captured step and its launches wait for nothing, allocate nothing and make no communicator") {
    constexpr std::size_t ranks = 3;
    Alone alone(ranks);
    std::string called;
    const auto note = [&](std::string_view call) {
        if (standin::calls(call) != 0) { called += std::string(call) + " "; }
    };
    const auto note_costly = [&] {
        for (const std::string_view call :
             {"cudaStreamSynchronize", "cudaStreamQuery", "cudaEventSynchronize", "cudaEventQuery", "cudaMalloc",
              "cudaFree", "cudaMallocHost", "cudaHostAlloc", "cudaFreeHost", "cudaStreamCreateWithFlags",
              "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "ncclMemAlloc", "ncclCommInitRank",
              "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommRegister"}) {
            note(call);
        }
    };
    std::size_t gathers = 0;
    std::size_t reductions = 0;
    const std::string error = on_nccl(ranks, small_trainer::all_paces[0], [&](NcclRank& rank, const auto& streams) {
        step_trainer::Trainer<float, NcclRank> trainer(rank, sk::DynamicPolicy(sk::FullShard{}),
                                                       {.microbatches = 2, .scales_loss = true});
        trainer.step();
        streams.compute.synchronize();
        streams.communication.synchronize();
        alone(rank.rank(), 0, [] { standin::reset_calls(); });
        const CapturedStep graph(streams, [&] { trainer.step(); });
        alone(rank.rank(), 1, [&] {
            note_costly();
            gathers = standin::calls("ncclAllGather");
            reductions = standin::calls("ncclReduceScatter");
            standin::reset_calls();
        });
        for (int i = 0; i < 3; ++i) { graph.launch(); }
        alone(rank.rank(), 2, [&] {
            note_costly();
            for (const std::string_view call :
                 {"cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaMemsetAsync", "ncclAllGather", "ncclReduceScatter",
                  "ncclAllReduce", "ncclCommGetAsyncError"}) {
                note(call);
            }
            CHECK(standin::calls("cudaGraphLaunch") == 3 * ranks);
        });
        static_cast<void>(trainer.outcome());
    });
    CHECK(error == "");
    CHECK(called == "");
    CHECK(gathers == ranks * step_trainer::layers * 2 * 2);  // forward and backward of two microbatches
    CHECK(reductions == ranks * step_trainer::layers * 2);
}

}  // namespace graph_test
