// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/split.hpp>

#include "../verb_checks.hpp"
#include "gpu_ranks.hpp"

namespace compare_calls_test {

namespace {

using namespace shardkit;
using namespace verb_checks;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::Kind;
using rank_checks::Outcome;

constexpr SourceLocation here{"train.cpp", 5};
constexpr std::size_t k = 12;

nccl::Options comparing(CompareCalls when) {
    nccl::Options options = gpu_ranks::patient();
    options.compare_calls = when;
    return options;
}

/// Every rank was told the same.
void check_told(const std::vector<Outcome>& outcomes, const std::string& sentence) {
    for (const Outcome& outcome : outcomes) {
        CAPTURE(outcome.text);
        CHECK(outcome.kind == Kind::comm);
        CHECK(contains(outcome.text, sentence));
    }
}

/// A step of calls over the world and over pairs of its four ranks, in which rank 3 does `fault` instead of the last.
template <class Fault>
std::vector<Outcome> outcomes_of(CompareCalls when, const Fault& fault) {
    standin::set_compares_calls(false);  // as NCCL itself
    return gpu_ranks::with_world(4, comparing(when), [&](const Comm& world, nccl::World&) {
        const Comm pairs = split(world, world.rank() / 2, world.rank() % 2, "pairs", here);
        const auto stream = verb_values::Bench<Comm>::stream(world);
        auto full = world.buffer<float>(4 * k);
        for (int step = 0; step < 3; ++step) {
            all_reduce_in_place(pairs, ReduceOp::sum, full.span(), stream, here);
            if (world.rank() == 3 && step == 2) {
                fault(world, full.span(), stream);
            } else {
                all_gather_in_place(world, full.span(), stream, here);
            }
            compare_calls(world, here);
            compare_calls(pairs, here);
            stream.synchronize();
        }
    });
}

}  // namespace

TEST_CASE("nccl: calls are compared when asked to; in checked builds each, unless asked not to") {
    CHECK(nccl::Options{}.compare_calls == (checked ? CompareCalls::each_call : CompareCalls::off));
}

TEST_CASE("nccl: ranks that make the same calls agree, whenever they compare") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        for (const CompareCalls when : {CompareCalls::off, CompareCalls::each_step, CompareCalls::each_call}) {
            gpu_ranks::restart(pace);
            const auto outcomes =
                outcomes_of(when, [](const Comm& world, std::span<float> full, const shardkit::Stream& stream) {
                    all_gather_in_place(world, full, stream, here);
                });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::live() == standin::Live{});
        }
    }
}

TEST_CASE("nccl: a rank that calls another verb of the same size is named") {
    for (const standin::Pace pace : gpu_ranks::paces) {
        for (const CompareCalls when : {CompareCalls::each_step, CompareCalls::each_call}) {
            gpu_ranks::restart(pace);
            const auto outcomes =
                outcomes_of(when, [](const Comm& world, std::span<float> full, const shardkit::Stream& stream) {
                    reduce_scatter_in_place(world, ReduceOp::sum, full, stream, here);
                });
            check_told(outcomes,
                       "nccl: compare_calls over world at train.cpp:5: the ranks disagree in call 3: rank 0 calls "
                       "all_gather of 12 fp32 at train.cpp:5, rank 3 calls reduce_scatter sum of 48 fp32 at "
                       "train.cpp:5");
        }
    }
}

TEST_CASE("nccl: a rank that gives another number of elements is named") {
    for (const CompareCalls when : {CompareCalls::each_step, CompareCalls::each_call}) {
        gpu_ranks::restart();
        const auto outcomes =
            outcomes_of(when, [](const Comm& world, std::span<float> full, const shardkit::Stream& stream) {
                all_gather_in_place(world, full.first(4 * 11), stream, here);
            });
        check_told(outcomes, "rank 0 calls all_gather of 12 fp32 at train.cpp:5, rank 3 calls all_gather of 11 fp32");
    }
}

TEST_CASE("nccl: counts of an uneven all-to-all that contradict each other are named, with both sides") {
    for (const CompareCalls when : {CompareCalls::each_step, CompareCalls::each_call}) {
        gpu_ranks::restart();
        standin::set_compares_calls(false);
        const auto outcomes = gpu_ranks::with_world(3, comparing(when), [](const Comm& world, nccl::World&) {
            const auto stream = verb_values::Bench<Comm>::stream(world);
            auto sent = world.buffer<float>(3 * k);
            auto received = world.buffer<float>(3 * k);
            std::vector<std::size_t> sends(3, k);
            const std::vector<std::size_t> receives(3, k);
            for (int step = 0; step < 3; ++step) {
                if (step == 2 && world.rank() == 2) { sends = {k - 1, k + 1, k}; }
                all_to_all_uneven(world, sent.span(), sends, received.span(), receives, stream, here);
                compare_calls(world, here);
            }
            stream.synchronize();
        });
        check_told(outcomes,
                   "the ranks disagree in call 2: rank 2 calls all_to_all_uneven of fp32 with 11 to rank 0 at "
                   "train.cpp:5, rank 0 calls all_to_all_uneven of fp32 with 12 from rank 2 at train.cpp:5");
    }
}

TEST_CASE("nccl: a rank that calls one more, or one less, is named") {
    for (const CompareCalls when : {CompareCalls::each_step, CompareCalls::each_call}) {
        gpu_ranks::restart();
        check_told(outcomes_of(when,
                               [](const Comm& world, std::span<float> full, const shardkit::Stream& stream) {
                                   all_gather_in_place(world, full, stream, here);
                                   barrier(world, stream, here);
                               }),
                   "the ranks disagree in call 4: rank 0 calls nothing more, rank 3 calls barrier at train.cpp:5");
        gpu_ranks::restart();
        check_told(outcomes_of(when, [](const Comm&, std::span<float>, const shardkit::Stream&) {}),
                   "the ranks disagree in call 3: rank 0 calls all_gather of 12 fp32 at train.cpp:5, rank 3 calls "
                   "nothing more");
    }
}

TEST_CASE("nccl: groups of one size that a rank uses in another order are named, with both lines") {
    using Layer = Sharded<TensorList<float>, FullShard>;
    for (const bool adds : {false, true}) {
        CAPTURE(adds);
        gpu_ranks::restart();
        const auto outcomes =
            gpu_ranks::with_world(2, comparing(CompareCalls::each_call), [&](const Comm& comm, nccl::World& world) {
                MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{2}, comm, {}, world.streams());
                Layer a{rank, "blocks.0", {{"w", {11}}}};
                Layer b{rank, "blocks.1", {{"w", {11}}}};
                Layer& first = comm.rank() == 0 ? a : b;
                if (adds) {
                    const Model model{a, b};
                    Accumulation accumulation{model};
                    accumulation.add_zero(first);
                } else {
                    static_cast<void>(first.unshard());
                }
                world.streams().compute.synchronize();
            });
        const std::string what = adds ? " gradients at " : " parameters at ";
        for (const Outcome& outcome : outcomes) {
            CAPTURE(outcome.text);
            CHECK(outcome.kind == Kind::comm);
            for (const std::string path : {"'blocks.0'", "'blocks.1'"}) {
                const std::size_t at = outcome.text.find("for " + path + what);
                REQUIRE(at != std::string::npos);
                CHECK(contains(outcome.text.substr(at, 200), "compare_calls_test.cpp:"));
            }
        }
    }
}

TEST_CASE("nccl: ranks that state different learning rates are told both, within the next step") {
    using Layer = Sharded<TensorList<float>, FullShard>;
    for (const CompareCalls when : {CompareCalls::each_step, CompareCalls::each_call}) {
        CAPTURE(static_cast<int>(when));
        gpu_ranks::restart();
        const auto outcomes =
            gpu_ranks::with_world(2, comparing(when), [&](const gpu_ranks::Comm& comm, nccl::World& world) {
                MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{2}, comm, {}, world.streams());
                Layer layer{rank, "layer", {{"w", {11}}}};
                const Model model{layer};
                SGD optimizer{model, {.learning_rate = comm.rank() == 0 ? 0.5 : 0.25}};
                for (int step = 0; step < 2; ++step) {
                    Accumulation accumulation{model};
                    accumulation.add_zero(layer);
                    optimizer.step(reduce(std::move(accumulation), mean));
                }
                world.streams().compute.synchronize();
            });
        check_told(outcomes,
                   "rank 0 calls reduce_scatter sum of 64 fp32 for 'layer' gradients with learning rate "
                   "0.5 (stated at ");
        check_told(outcomes,
                   "rank 1 calls reduce_scatter sum of 64 fp32 for 'layer' gradients with learning rate "
                   "0.25 (stated at ");
    }
}

TEST_CASE("nccl: messages, which only two ranks know of, are not compared") {
    gpu_ranks::restart();
    const auto outcomes =
        gpu_ranks::with_world(3, comparing(CompareCalls::each_call), [](const Comm& world, nccl::World&) {
            const auto stream = verb_values::Bench<Comm>::stream(world);
            auto values = world.buffer<float>(k);
            if (world.rank() == 0) { send(world, std::span<const float>(values.span()), 2, stream); }
            if (world.rank() == 2) { receive(world, values.span(), 0, stream); }
            barrier(world, stream);
            compare_calls(world);
            stream.synchronize();
        });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: a rank that does not come to be compared ends the others after their timeout") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::impatient();
    options.compare_calls = CompareCalls::each_step;
    const auto outcomes = gpu_ranks::with_world(2, options, [](const Comm& world, nccl::World&) {
        if (world.rank() == 0) { compare_calls(world); }
        if (world.rank() == 1) { throw rank_checks::Planted("gone"); }
    });
    CHECK(outcomes[0].kind == Kind::comm);
}

TEST_CASE("nccl: a rank that waited in vain says its last calls") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::impatient(), [](const Comm& world, nccl::World&) {
        const auto stream = verb_values::Bench<Comm>::stream(world);
        auto values = world.buffer<float>(2 * k);
        barrier(world, stream, here);
        if (world.rank() == 0) { all_gather_in_place(world, values.span(), stream, here); }
        stream.synchronize();
        if (world.rank() == 1) { throw rank_checks::Planted("gone"); }
    });
    CHECK(contains(outcomes[0].text,
                   "; this rank's last calls: barrier at train.cpp:5 over world, all_gather of 12 fp32 "
                   "at train.cpp:5 over world"));
}

TEST_CASE("nccl: without comparisons there is one communicator for each group, with them two") {
    for (const CompareCalls when : {CompareCalls::off, CompareCalls::each_step}) {
        gpu_ranks::restart();
        const auto outcomes = gpu_ranks::with_world(2, comparing(when), [&](const Comm& world, nccl::World&) {
            barrier(world, world.streams().communication);
            world.streams().communication.synchronize();
            barrier(world, world.streams().communication);
            rank_checks::expect(standin::live().communicators >= (when == CompareCalls::off ? 1U : 2U),
                                "communicators");
            world.streams().communication.synchronize();
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::calls("ncclCommSplit") == (when == CompareCalls::off ? 0 : 2));
    }
}

}  // namespace compare_calls_test
