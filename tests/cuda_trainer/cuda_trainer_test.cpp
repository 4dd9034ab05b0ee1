// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "largest_difference.hpp"
#include "test_size.hpp"
#include "trainer_ranks.hpp"

namespace cuda_trainer_test {

namespace {

using namespace trainer_ranks;

constexpr standin::Pace paces[] = {standin::Pace::lazy, standin::Pace::eager};
const std::vector<std::string> policies{"no_shard",     "shard_optimizer",  "shard_grad_op",  "full_shard",
                                        "hybrid_shard", "hybrid_optimizer", "secondary_shard"};

void restart(standin::Pace pace = standin::Pace::lazy) {
    standin::reset();
    standin::set_pace(pace);
}
/// Nothing is left behind, and no two ranks launched communication in different orders.
void check_clean() {
    CHECK(standin::order_violations().empty());
    CHECK(standin::frees_in_use().empty());
    CHECK(standin::hangs() == 0);
    CHECK(standin::live() == standin::Live{});
}
/// Means of about 5.5 are 4.8e-7 apart in fp32. Ranks and microbatches add the same samples in another order, and
/// AdamW's first steps are as long for a small gradient as for a large one, so that its rounding grows with the
/// steps.
constexpr double rounding = 2e-4;

}  // namespace

TEST_CASE("cuda_trainer: before and after with no_shard print the same losses, to the last bit") {
    for (const standin::Pace pace : paces) {
        for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
            CAPTURE(ranks);
            Options options = small_options();
            options.microbatches = 2;
            restart(pace);
            const Run before = run(ranks, options, before::train);
            check_clean();
            restart(pace);
            const Run after = run(ranks, options, sharded());
            check_clean();
            CHECK(before.all() == after.all());
            CHECK(before.all().front() > 5);
        }
    }
}

TEST_CASE("cuda_trainer: every policy on any number of ranks gives the losses of one rank") {
    restart();
    Options options = small_options();
    options.clip = 0.5;
    const Means alone = run(1, options, sharded()).all();
    check_clean();
    for (const standin::Pace pace : paces) {
        for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
            Means of_no_shard;
            for (const std::string& policy : policies) {
                for (const std::size_t microbatches : {std::size_t{1}, std::size_t{3}}) {
                    CAPTURE(ranks);
                    CAPTURE(policy);
                    CAPTURE(microbatches);
                    options.policy = chosen(policy, ranks == 4 ? 2 : 1);
                    options.microbatches = microbatches;
                    restart(pace);
                    const Run given = run(ranks, options, sharded());
                    check_clean();
                    CHECK(largest_difference(given.all(), alone) < rounding);
                    // Two ranks have no other order of their sums.
                    if (microbatches == 1 && policy == "no_shard") { of_no_shard = given.all(); }
                    if (ranks < 4 && microbatches == 1 && !program::has_groups(options.policy.kind)) {
                        CHECK(given.all() == of_no_shard);
                    }
                }
            }
        }
    }
}

TEST_CASE("cuda_trainer: communication may run as early or as late as its stream is allowed to") {
    Options options = small_options();
    options.model.layers = 5;
    options.microbatches = 2;
    options.clip = 0.5;
    for (const std::string& policy : policies) {
        options.policy = chosen(policy, 2);
        restart();
        const Means losses = run(4, options, sharded()).all();
        for (const standin::Pace pace : paces) {
            CAPTURE(policy);
            const standin::Pace other = pace == standin::Pace::lazy ? standin::Pace::eager : standin::Pace::lazy;
            for (const bool graph : {false, true}) {
                CAPTURE(graph);
                options.graph = graph;
                restart(pace);
                CHECK(run(4, options, sharded_communicating(other)).all() == losses);
                check_clean();
            }
        }
        options.graph = false;
    }
}

TEST_CASE("cuda_trainer: launches of a captured step give the losses of plain steps, to the last bit") {
    for (const standin::Pace pace : paces) {
        for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
            for (const std::string& policy : policies) {
                for (const std::size_t microbatches : {std::size_t{1}, std::size_t{2}}) {
                    CAPTURE(ranks);
                    CAPTURE(policy);
                    CAPTURE(microbatches);
                    Options options = small_options();
                    options.policy = chosen(policy, ranks == 4 ? 2 : 1);
                    options.microbatches = microbatches;
                    options.clip = microbatches == 1 ? 0.5 : 0;
                    restart(pace);
                    const Means plain = run(ranks, options, sharded()).all();
                    CHECK(standin::calls("cudaStreamBeginCapture") == 0);
                    options.graph = true;
                    restart(pace);
                    CHECK(run(ranks, options, sharded()).all() == plain);
                    check_clean();
                    CHECK(standin::calls("cudaStreamBeginCapture") == ranks);
                    CHECK(standin::calls("cudaGraphLaunch") == ranks * (options.steps - 1));
                }
            }
        }
    }
}

TEST_CASE("cuda_trainer: steps that follow a schedule give the losses of plain steps, captured or not") {
    for (const standin::Pace pace : paces) {
        for (const std::string& policy : policies) {
            for (const std::size_t microbatches : {std::size_t{1}, std::size_t{2}}) {
                CAPTURE(policy);
                CAPTURE(microbatches);
                Options options = small_options();
                options.policy = chosen(policy, 2);
                options.microbatches = microbatches;
                options.clip = microbatches == 1 ? 0.5 : 0;
                restart(pace);
                const Means plain = run(4, options, sharded()).all();
                options.schedule = true;
                for (const bool graph : {false, true}) {
                    CAPTURE(graph);
                    options.graph = graph;
                    restart(pace);
                    const Run scheduled = run(4, options, sharded());
                    CHECK(scheduled.all() == plain);
                    check_clean();
                    CHECK(standin::calls("cudaGraphLaunch") == (graph ? 4 * (options.steps - 1) : 0));
                    CHECK(scheduled.bytes == std::vector<std::size_t>(4, scheduled.bytes[0]));
                    CHECK(scheduled.bytes[0] > 0);
                }
            }
        }
    }
}

TEST_CASE("cuda_trainer: tokens that a launch did not get are seen in its loss") {
    Options options = small_options();
    options.policy = chosen("full_shard");
    restart();
    const Means plain = run(2, options, sharded()).all();
    options.graph = true;
    restart();
    // Beside the launches of the graph, a step's only kernel is the one that copies its tokens.
    const Means planted = run(2, options, sharded(), [](std::size_t rank, std::size_t step) {
                              if (rank == 1 && step == 3) {
                                  standin::forget_next("cudaLaunchHostFunc", static_cast<int>(rank));
                              }
                          }).all();
    check_clean();
    CHECK(std::equal(plain.begin(), plain.begin() + 4, planted.begin()));
    CHECK(plain[4] != planted[4]);
}

TEST_CASE("cuda_trainer: it learns real text") {
    restart();
    Options options = small_options();
    options.steps = 120;
    options.every = 40;
    options.policy = chosen("full_shard");
    options.clip = 1;
    const Run given = run(2, options, sharded());
    check_clean();
    const Means& losses = given.all();
    const double end = std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
    // Bytes of English by frequency alone: about 3.1.
    CHECK(losses.front() > 5);
    CHECK(end < 3.0);

    restart();
    const Run again = run(2, options, sharded());
    CHECK(again.all() == losses);
}

TEST_CASE("cuda_trainer: steps allocate nothing and make no communicator, plain or captured with a schedule") {
    for (const std::string& policy : policies) {
        for (const bool graph : {false, true}) {
            CAPTURE(policy);
            CAPTURE(graph);
            restart();
            constexpr std::size_t ranks = 4;
            Options options = small_options();
            options.policy = chosen(policy, 2);
            options.graph = graph;
            options.schedule = graph;
            options.microbatches = 2;
            options.clip = 1;
            Meeting meeting(ranks);
            const std::vector<std::string> none{"cudaMalloc",
                                                "cudaMallocHost",
                                                "cudaHostAlloc",
                                                "cudaFree",
                                                "cudaStreamCreateWithFlags",
                                                "cudaStreamCreateWithPriority",
                                                "cudaEventCreateWithFlags",
                                                "ncclMemAlloc",
                                                "ncclCommInitRank",
                                                "ncclCommInitRankConfig",
                                                "ncclCommSplit"};
            std::vector<std::size_t> calls;
            std::size_t reductions = 0;
            const Run given = run(ranks, options, sharded(), [&](std::size_t, std::size_t step) {
                meeting.meet([&] {
                    if (step == 0) { standin::reset_calls(); }
                    if (step + 1 < options.steps) { return; }
                    for (const std::string& call : none) { calls.push_back(standin::calls(call)); }
                    reductions = standin::calls("ncclAllReduce") + standin::calls("ncclReduceScatter");
                });
            });
            check_clean();
            CHECK(given.all().size() == options.steps);
            CHECK(calls == std::vector<std::size_t>(none.size(), 0));
            CHECK(reductions > 0);
        }
    }
}

TEST_CASE("cuda_trainer: the printed memory is what shardkit takes of the device, and sharding lowers it") {
    Options options = small_options();
    options.model.layers = 8;
    options.clip = 1;
    options.microbatches = 2;
    constexpr std::size_t ranks = 4;
    std::vector<std::size_t> planned;
    std::vector<std::size_t> beside;
    for (const std::string& policy : policies) {
        CAPTURE(policy);
        options.policy = chosen(policy, 2);
        restart();
        // A chunk of its own for every buffer, so that the device's count is that of the buffers.
        shardkit::nccl::Options nccl = small_and_patient();
        nccl.arena_chunk_bytes = 1;
        Meeting meeting(ranks);
        std::size_t measured = 0;
        const Run given = run(ranks, options, sharded_with(nccl), [&](std::size_t, std::size_t step) {
            if (step + 1 == options.steps) {
                meeting.meet([&] { measured = standin::peak_device_bytes(0); });
            }
        });
        CHECK(given.all().size() == options.steps);
        CHECK(given.bytes == std::vector<std::size_t>(ranks, given.bytes[0]));
        planned.push_back(given.bytes[0]);
        beside.push_back(measured - given.bytes[0]);
    }
    // Besides, whatever the policy: the text, the activations, scratch and staging memory; and small tables, the only
    // things that may differ. Buffers are multiples of 512 bytes.
    for (const std::size_t bytes : beside) {
        CHECK(std::max(bytes, beside[0]) - std::min(bytes, beside[0]) < planned[0] / 25);
    }
    CHECK(planned[1] < planned[0]);
    CHECK(planned[3] < planned[1]);
    CHECK(planned[3] < planned[4]);
}

TEST_CASE("cuda_trainer: a rank that gives up is an error of the others, not a hang") {
    for (const std::string& policy : {std::string("no_shard"), std::string("hybrid_shard")}) {
        for (const bool graph : {false, true}) {
            CAPTURE(policy);
            CAPTURE(graph);
            restart();
            Options options = small_options();
            options.policy = chosen(policy, 2);
            options.graph = graph;
            shardkit::nccl::Options nccl = small_and_patient();
            nccl.timeout = std::chrono::milliseconds(300);
            const Run given = run(4, options, sharded_with(nccl), [](std::size_t rank, std::size_t step) {
                if (rank == 2 && step == 3) { throw std::runtime_error("planted"); }
            });
            CHECK(given.errors[2] == "planted");
            for (const std::size_t rank : {0U, 1U, 3U}) {
                CAPTURE(given.errors[rank]);
                CHECK(given.errors[rank].find("nccl") != std::string::npos);
            }
            CHECK(standin::live() == standin::Live{});
            CHECK(standin::hangs() == 0);
        }
    }
}

TEST_CASE("cuda_trainer: a rank that is gone while communicators are made ends the others") {
    if (test_size::sanitized) { return; }  // as below
    shardkit::nccl::Options nccl = small_and_patient();
    nccl.timeout = std::chrono::milliseconds(60);
    Options options = small_options();
    options.policy = chosen("hybrid_shard", 2);  // the one that splits the lent communicator
    options.steps = 1;
    constexpr std::size_t ranks = 4;
    const Train train = sharded_with(nccl);
    std::size_t call = 0;
    for (bool made = false; !made; call += test_size::reduced() ? 4U : 1U) {
        CAPTURE(call);
        restart();
        const Run given = run(ranks, options, [&](const auto& o, const auto& text, auto& job, const auto& r) {
            if (job.rank == 1) { standin::kill_device_at(1, call); }
            return train(o, text, job, r);
        });
        CHECK(standin::hangs() == 0);
        made = true;
        for (const std::string& error : given.errors) {
            CAPTURE(error);
            CHECK(error.find("nccl") != std::string::npos);
            made = made && error.find("split") == std::string::npos;
        }
        made = made || standin::lives(1);
    }
    CHECK(call > 4);
}

TEST_CASE("cuda_trainer: a rank that is gone at any of its calls ends the others, plain and in graphs") {
    if (test_size::sanitized) { return; }  // what a lent communicator's hung work uses would be reported as a leak
    shardkit::nccl::Options nccl = small_and_patient();
    nccl.timeout = std::chrono::milliseconds(60);
    for (const std::string& policy : policies) {
        for (const bool graph : {false, true}) {
            CAPTURE(policy);
            CAPTURE(graph);
            Options options = small_options();
            options.policy = chosen(policy, 2);
            options.graph = graph;
            options.clip = 1;
            options.steps = 3;
            const std::size_t ranks = policy == "hybrid_shard" ? 4 : 2;
            std::size_t call = 0;
            for (bool all_done = false; !all_done; call += test_size::reduced() ? 8U : 2U) {
                CAPTURE(call);
                restart();
                const Run given = run(ranks, options, sharded_with(nccl), [&](std::size_t rank, std::size_t step) {
                    if (rank == 1 && step == 1) { standin::kill_device_at(1, call); }
                });
                CHECK(standin::hangs() == 0);
                all_done = standin::lives(1);
                for (std::size_t rank = 0; rank < ranks && !all_done; ++rank) {
                    CAPTURE(given.errors[rank]);
                    const bool through = given.losses[rank].size() == options.steps;
                    CHECK((through || given.errors[rank].find("nccl") != std::string::npos));
                }
            }
            CHECK(call > 1);
        }
    }
}

}  // namespace cuda_trainer_test
