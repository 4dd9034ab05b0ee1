// SPDX-License-Identifier: Apache-2.0
// Reductions beside gathers: a stream and a communicator of their own.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

#include "../../thrown_message.hpp"
#include "alone.hpp"
#include "gpu_ranks.hpp"

namespace reduction_lane_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;
using rank_checks::expect;
using rank_checks::Kind;
using Mesh = DeviceMesh<dynamic>;

struct Weight : Param<"weight", float, 64> {};
struct Bias : Param<"bias", float, 256> {
    using TensorParallel = tp::PartialSum;
};
struct Wide : Param<"wide", bf16, dynamic> {};
using Layer = Sharded<Weight, DynamicPolicy>;

constexpr SourceLocation here{"train.cpp", 5};

/// Communicators of NCCL's that each of four ranks splits off for a model of two groups.
std::size_t splits_of(const DynamicPolicy& policy, const nccl::Options& options) {
    constexpr std::size_t ranks = 4;
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
        MeshRank<Mesh> rank(Mesh(ranks), comm, {}, world.streams());
        const Layer first{rank, "first", {}, {.policy = policy}};
        const Layer second{rank, "second", {}, {.policy = policy}};
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::live() == standin::Live{});
    CHECK(standin::calls("ncclCommSplit") % ranks == 0);
    return standin::calls("ncclCommSplit") / ranks;
}

/// The same for groups on a mesh of 2 x 2 ranks, of dp and tp.
template <class Group>
std::size_t splits_on_dp_and_tp() {
    using Square = DeviceMesh<dynamic, dynamic>;
    constexpr std::size_t ranks = 4;
    gpu_ranks::restart();
    const auto outcomes =
        gpu_ranks::with_world(ranks, gpu_ranks::patient(), [&](const Comm& comm, nccl::World& world) {
            MeshRank<Square> rank(Square(2, 2), comm, {}, world.streams());
            const Sharded<Group, FullShard> layer{rank, "layer"};
        });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::calls("ncclCommSplit") % ranks == 0);
    return standin::calls("ncclCommSplit") / ranks;
}

nccl::Options together() {
    nccl::Options options = gpu_ranks::patient();
    options.separate_reductions = false;
    return options;
}

/// One gather and one sum of 16-bit elements in each of the two streams, given at once.
std::string sums_beside_gathers(standin::Pace communication, standin::Pace reduction, bool pieces) {
    constexpr std::size_t ranks = 3;
    constexpr std::size_t k = 200;
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    if (pieces) { options.staging_bytes = 1; }  // the least that there is
    const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
        const auto streams = world.streams();
        standin::set_pace(streams.communication.native(), communication);
        standin::set_pace(streams.reduction.native(), reduction);
        comm.separate_reductions();
        std::vector<bf16> ones(ranks * k, bf16(1.0F));
        std::vector<bf16> twos(ranks * k, bf16(2.0F));
        std::array<std::vector<float>, 2> results{std::vector<float>(ranks * k), std::vector<float>(ranks * k)};
        using Addends = verb_values::Bench<Comm>::Memory<bf16>;
        using Sums = verb_values::Bench<Comm>::Memory<float>;
        Addends of_layers(comm, ones);
        Addends of_gradients(comm, twos);
        of_layers.write(ones);
        of_gradients.write(twos);
        Sums layers(comm, results[0]);
        Sums gradients(comm, results[1]);
        streams.communication.synchronize();
        all_reduce(comm, ReduceOp::sum, std::span<const bf16>(of_gradients.data(), ranks * k),
                   std::span<float>(gradients.data(), ranks * k), streams.reduction);
        barrier(comm, streams.communication);
        all_reduce(comm, ReduceOp::sum, std::span<const bf16>(of_layers.data(), ranks * k),
                   std::span<float>(layers.data(), ranks * k), streams.communication);
        barrier(comm, streams.reduction);
        streams.reduction.synchronize();
        layers.read(results[0]);
        gradients.read(results[1]);
        for (std::size_t i = 0; i < ranks * k; ++i) {
            expect(results[0][i] == 3, "layers' sum ", i, " is ", results[0][i], ", expected 3");
            expect(results[1][i] == 6, "gradients' sum ", i, " is ", results[1][i], ", expected 6");
        }
    });
    std::string error = gpu_ranks::first_error(outcomes);
    for (const std::string& violation : standin::order_violations()) { error += violation; }
    return error;
}

/// The reductions of a step end although gathers are held up: one that is under way, and one behind it.
void check_step_beside_gathers(const DynamicPolicy& policy, std::size_t ranks) {
    CAPTURE(policy.name());
    gpu_ranks::restart();
    const auto outcomes =
        gpu_ranks::with_world(ranks, gpu_ranks::impatient(), [&](const Comm& comm, nccl::World& world) {
            const auto streams = world.streams();
            MeshRank<Mesh> rank(Mesh(ranks), comm, {.in_flight = 3}, streams);
            std::vector<Layer> layers;
            for (const char* const path : {"first", "second", "third"}) {
                layers.emplace_back(rank, path, Shapes<Weight>{}, Layer::Options{.policy = policy});
                layers.back().initialize([](auto, auto, std::size_t i) { return static_cast<double>(i); });
            }
            Model model{layers};
            Accumulation accumulation{model};
            auto window = layers[2].unshard();
            auto handle = accumulation.gradients(layers[2]);
            streams.compute.synchronize();
            streams.communication.synchronize();
            standin::hold(streams.communication.native());
            auto second = layers[1].begin_unshard();
            auto first = layers[0].begin_unshard();
            layers[2].reshard(std::move(window));
            accumulation.add(std::move(handle));
            accumulation.skip(layers[1]);
            accumulation.skip(layers[0]);
            const auto reduced = reduce(std::move(accumulation), sum);
            streams.reduction.synchronize();
            standin::release(streams.communication.native());
            { const auto ended = std::move(second).wait(); }
            { const auto ended = std::move(first).wait(); }
        });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::order_violations().empty());
}

}  // namespace

TEST_CASE("nccl: reductions have a stream of the greatest priority, unless they are to run with the gathers") {
    const auto own_stream = [](std::size_t ranks, const nccl::Options& options) {
        gpu_ranks::restart();
        std::vector<char> own(ranks);
        const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
            const auto streams = world.streams();
            own[comm.rank()] = streams.reduction.native() != streams.communication.native() ? 1 : 0;
            int least = 0;
            int greatest = 0;
            int given = 1;
            expect(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess &&
                       cudaStreamGetPriority(streams.reduction.native(), &given) == cudaSuccess && given == greatest,
                   "priority ", given);
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        return std::ranges::count(own, 1) == static_cast<std::ptrdiff_t>(ranks);
    };
    CHECK(own_stream(2, gpu_ranks::patient()));
    CHECK_FALSE(own_stream(2, together()));
    CHECK_FALSE(own_stream(1, gpu_ranks::patient()));
    nccl::Options shared = gpu_ranks::patient();
    shared.split_share = true;
    CHECK_FALSE(own_stream(2, shared));
}

TEST_CASE("nccl: a second communicator is made where gathers and reductions go over the same ranks, once") {
    CHECK(splits_of(DynamicPolicy(NoShard{}), gpu_ranks::patient()) == 0);
    CHECK(splits_of(DynamicPolicy(ShardOptimizer{}), gpu_ranks::patient()) == 1);
    CHECK(splits_of(DynamicPolicy(ShardGradOp{}), gpu_ranks::patient()) == 1);
    CHECK(splits_of(DynamicPolicy(FullShard{}), gpu_ranks::patient()) == 1);
    CHECK(splits_of(DynamicPolicy(HybridShard<2>{}), gpu_ranks::patient()) ==
          3);  // shards, replicas, and shards again
    CHECK(splits_of(DynamicPolicy(FullShard{}), together()) == 0);
    CHECK(splits_of(DynamicPolicy(HybridShard<2>{}), together()) == 2);
    CHECK(splits_on_dp_and_tp<Weight>() == 3);  // dp, tp, and dp again
    CHECK(splits_on_dp_and_tp<Bias>() == 4);    // and tp again, where layers' own verbs may be under way
}

TEST_CASE("nccl: a group that is given out again has its second communicator already") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(4, gpu_ranks::patient(), [](const Comm& comm, nccl::World& world) {
        const auto loop = [&](std::size_t times) {
            for (std::size_t i = 0; i < times; ++i) {
                MeshRank<Mesh> rank(Mesh(4), comm, {}, world.streams());
                const Layer layer{rank, "layer", {}, {.policy = DynamicPolicy(HybridShard<2>{})}};
            }
        };
        loop(2);
        const std::size_t groups = world.state().groups().size();
        loop(5);
        expect(world.state().groups().size() == groups, "no more groups");
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: in a step in backward, a layer's work does not wait for the sum of the layer before") {
    struct Case {
        Offload offload;
        GradientRelease release;
        std::size_t in_flight = 2;
    };
    for (const Case& each :
         {Case{Offload::none, GradientRelease::never}, Case{Offload::none, GradientRelease::at_update},
          Case{Offload::none, GradientRelease::at_update, 1}, Case{Offload::states, GradientRelease::never},
          Case{Offload::update, GradientRelease::never}}) {
        CAPTURE(each.in_flight);
        CAPTURE(static_cast<int>(each.offload));
        CAPTURE(static_cast<int>(each.release));
        gpu_ranks::restart(standin::Pace::eager);
        const auto outcomes =
            gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const Comm& comm, nccl::World& world) {
                const auto streams = world.streams();
                MeshRank<Mesh> rank(Mesh(2), comm, {.in_flight = each.in_flight}, streams);
                std::vector<Layer> layers;
                for (std::size_t l = 0; l < 3; ++l) {
                    Layer::Options options{DynamicPolicy(ShardOptimizer{})};
                    options.offload = each.offload;
                    options.gradient_release = each.release;
                    layers.emplace_back(rank, "layers." + std::to_string(l), Shapes<Params<Weight>>{}, options);
                }
                Model model{layers};
                SGD optimizer{model, {.learning_rate = 1}};
                streams.compute.synchronize();
                standin::hold(streams.reduction.native());
                Accumulation accumulation{model};
                optimizer.step_in_backward(accumulation);
                accumulation.add(accumulation.gradients(layers[2]));
                auto gradients = accumulation.gradients(layers[1]);
                std::atomic<bool> ran = false;
                const auto note = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
                gpu::detail::check(cudaLaunchHostFunc(streams.compute.native(), note, &ran), "cudaLaunchHostFunc");
                const bool beside = ran;
                standin::release(streams.reduction.native());
                // With one buffer it waits for the update that gives it back.
                expect(beside == (each.in_flight > 1), "the backward pass of layer 1 ran beside the sum of layer 2");
                accumulation.add(std::move(gradients));
                expect(contains(thrown_message<UsageError>([&] { static_cast<void>(layers[1].unshard()); }),
                                "between the group's update and the end of the step"),
                       "no window behind the last add");
                accumulation.add(accumulation.gradients(layers[0]));
                optimizer.step(std::move(accumulation));
                for (const Layer& layer : layers) { expect(optimizer.steps(layer) == 1, "each layer is updated"); }
            });
        CHECK(gpu_ranks::first_error(outcomes) == "");
    }
}

TEST_CASE("nccl: staging memory grows behind all verbs that use it, on whichever stream") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.separate_reductions = false;
    const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
        bool over = false;
        const shardkit::gpu::TimelineRef compute(world.streams().compute);
        auto values = world.communicator().buffer<bf16>(100);
        all_reduce_in_place(comm, ReduceOp::sum, values.span(), compute, here);  // staged, as fp32
        const auto note = [](void* flag) { *static_cast<bool*>(flag) = true; };
        gpu::detail::check(cudaLaunchHostFunc(compute.native(), note, &over), "cudaLaunchHostFunc");
        comm.reserve_staging(2 * options.staging_bytes);
        expect(over, "the sum in the memory that is given back is over");
        compute.synchronize();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: a step's reductions end while gathers are held up, those across replicas too") {
    check_step_beside_gathers(DynamicPolicy(ShardGradOp{}), 2);
    check_step_beside_gathers(DynamicPolicy(FullShard{}), 2);
    check_step_beside_gathers(DynamicPolicy(FullShard{}), 3);
    check_step_beside_gathers(DynamicPolicy(HybridShard<2>{}), 4);
}

TEST_CASE("nccl: sums of 16-bit elements in both lanes at once, whole and in pieces, are right at every pace") {
    for (const standin::Pace communication : gpu_ranks::paces) {
        for (const standin::Pace reduction : gpu_ranks::paces) {
            for (const bool pieces : {false, true}) {
                CAPTURE(static_cast<int>(communication));
                CAPTURE(static_cast<int>(reduction));
                CAPTURE(pieces);
                CHECK(sums_beside_gathers(communication, reduction, pieces) == "");
            }
        }
    }
}

TEST_CASE("nccl: what reductions' communicator fails with is told by its name, and all communicators end") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::impatient(), [](const Comm& comm, nccl::World& world) {
        comm.separate_reductions();
        const auto streams = world.streams();
        auto values = world.communicator().buffer<float>(10);
        streams.compute.synchronize();
        standin::set_async_error(world.state().world_group().reductions->comm, ncclSystemError);
        const std::string said = thrown_message<CommError>([&] {
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.reduction, here);
            streams.reduction.synchronize(here);
        });
        expect(contains(said, "all_reduce over world at train.cpp:5"), said);
        expect(world.state().world_group().comm == nullptr && world.state().world_group().reductions->comm == nullptr,
               "aborted");
        throw rank_checks::Planted("on");
    });
    for (const auto& outcome : outcomes) { CHECK(outcome.text == "on"); }
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: an error of the reductions' communicator ends a wait for gathers") {
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::patient(), [](const Comm& comm, nccl::World& world) {
        comm.separate_reductions();
        const auto streams = world.streams();
        standin::hold(streams.communication.native());
        auto values = world.communicator().buffer<float>(10);
        all_gather_in_place(comm, values.span(), streams.communication, here);
        standin::set_async_error(world.state().world_group().reductions->comm, ncclSystemError);
        const std::string said = thrown_message<CommError>([&] { streams.communication.synchronize(here); });
        standin::release(streams.communication.native());
        expect(contains(said, "an earlier call over reductions over world failed"), said);
    });
    CHECK(standin::live() == standin::Live{});
}

TEST_CASE("nccl: a rank that dies in a reduction ends the others, whatever gathers do") {
    for (const bool survivable : {false, true}) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::impatient();
        options.survivable = survivable;
        const nccl::UniqueId id = nccl::UniqueId::create();
        const auto outcomes = gpu_ranks::each_in_a_thread(3, [&](std::size_t rank) {
            nccl::World world(id, 3, rank, options);
            const Comm comm(world);
            comm.separate_reductions();
            const auto streams = world.streams();
            auto values = world.communicator().buffer<float>(30);
            streams.compute.synchronize();
            if (rank == 1) {
                standin::kill_device(1);
                throw rank_checks::Planted("gone");
            }
            all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.reduction, here);
            expect(contains(thrown_message<CommError>([&] { streams.reduction.synchronize(here); }),
                            gpu_ranks::after_short_timeout),
                   "late");
            expect(world.state().world_group().reductions->comm == nullptr, "aborted");
            if (!survivable) { return; }
            const std::array<std::size_t, 1> lost{1};
            nccl::World left(nccl::Survivors{world, lost}, gpu_ranks::patient());
            const Comm fewer(left);
            fewer.separate_reductions();
            auto again = left.communicator().buffer<float>(30);
            all_reduce_in_place(fewer, ReduceOp::sum, again.span(), left.streams().reduction, here);
            left.streams().reduction.synchronize();
            expect(left.state().world_group().reductions != nullptr, "made again");
            left.finish();
        });
        for (const std::size_t rank : {0U, 2U}) { CHECK(outcomes[rank].text == ""); }
        CHECK(outcomes[1].kind == Kind::planted);
        CHECK(standin::hangs() == 0);
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE("nccl: reductions that get on are waited for as long as they do") {
    constexpr std::size_t pieces = 5;
    gpu_ranks::restart();
    const auto outcomes = gpu_ranks::with_world(2, gpu_ranks::impatient(), [](const Comm&, nccl::World& world) {
        const auto streams = world.streams();
        const std::vector<gpu::Stream> held(pieces);
        for (const gpu::Stream& each : held) {
            const gpu::Event event;
            standin::hold(each.ref().native());
            each.ref().record(event);
            gpu::StreamRef(streams.reduction.native()).wait(event);
            streams.communication.wait(streams.reduction.record());
        }
        std::thread releases([&] {
            for (const gpu::Stream& each : held) {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                standin::release(each.ref().native());
            }
        });
        const std::string said = thrown_message<CommError>([&] { streams.communication.synchronize(); });
        releases.join();
        expect(said == "nothing was thrown", said);
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
}

TEST_CASE("nccl: calls in both lanes are compared in the order in which they were given") {
    for (const CompareCalls when : {CompareCalls::each_call, CompareCalls::each_step}) {
        for (const bool disagree : {false, true}) {
            gpu_ranks::restart();
            standin::set_compares_calls(false);
            nccl::Options options = gpu_ranks::patient();
            options.compare_calls = when;
            const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
                comm.separate_reductions();
                expect(world.state().groups().size() == 3,
                       "the world's, that for comparing, and that for reductions");
                const auto streams = world.streams();
                auto values = world.communicator().buffer<float>(20);
                auto sums = world.communicator().buffer<float>(20);
                streams.compute.synchronize();
                all_gather_in_place(comm, values.span(), streams.communication, here);
                const std::size_t count = disagree && comm.rank() == 1 ? 18 : 20;
                reduce_scatter_in_place(comm, ReduceOp::sum, sums.span().first(count), streams.reduction, here);
                compare_calls(comm, here);
                streams.reduction.synchronize();
            });
            if (!disagree) {
                CHECK(gpu_ranks::first_error(outcomes) == "");
                continue;
            }
            for (const auto& outcome : outcomes) {
                CHECK(contains(outcome.text,
                               "the ranks disagree in call 1: rank 0 calls reduce_scatter sum of 20 fp32 at "
                               "train.cpp:5, rank 1 calls reduce_scatter sum of 18 fp32 at train.cpp:5"));
            }
        }
    }
}

TEST_CASE(
    "nccl: while the stream of reductions alone is captured, no verb waits for the GPU and no calls are compared") {
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.verbs_ahead = 3;
    options.compare_calls = CompareCalls::each_step;
    Alone alone(2);
    std::size_t queries = 1;
    std::size_t copies = 1;
    const auto outcomes = gpu_ranks::with_world(2, options, [&](const Comm& comm, nccl::World& world) {
        comm.separate_reductions();
        const auto streams = world.streams();
        const cudaStream_t captured = streams.reduction.native();
        auto values = world.communicator().buffer<float>(10);
        const auto add = [&] { all_reduce_in_place(comm, ReduceOp::sum, values.span(), streams.reduction); };
        streams.synchronize();
        for (int i = 0; i < 3; ++i) { add(); }
        streams.synchronize();
        alone(comm.rank(), 0, [] { standin::reset_calls(); });
        cudaGraph_t graph = nullptr;
        expect(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "begins");
        for (int i = 0; i < 10; ++i) { add(); }
        compare_calls(comm, here);
        expect(cudaStreamEndCapture(captured, &graph) == cudaSuccess, "ends");
        alone(comm.rank(), 1, [&] {
            queries = standin::calls("cudaEventQuery");
            copies = standin::calls("cudaMemcpyAsync");
        });
        expect(cudaGraphDestroy(graph) == cudaSuccess, "is destroyed");
        streams.fork();
        streams.synchronize();
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(queries == 0);
    CHECK(copies == 0);
}

TEST_CASE("nccl: reductions' communicator knows the memory that the first one knows") {
    for (const nccl::Registration registration : {nccl::Registration::buffers, nccl::Registration::windows}) {
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.registration = registration;
        const auto outcomes = gpu_ranks::with_world(2, options, [](const Comm& comm, nccl::World& world) {
            const auto memory = world.communicator().buffer<float>(2U << 20U);
            barrier(comm, world.streams().communication);
            world.streams().communication.synchronize();
            comm.separate_reductions();
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        const std::size_t made = standin::calls("ncclCommRegister") + standin::calls("ncclCommWindowRegister");
        CHECK(made == 2 * 2 * 2);  // two chunks with two communicators, on each rank
        CHECK(standin::frees_in_use().empty());
        CHECK(standin::live() == standin::Live{});
    }
}

TEST_CASE(
    "nccl: a group's sum of 16-bit gradients is one piece where its memory may grow, at every size of staging") {
    constexpr std::size_t ranks = 3;
    constexpr std::size_t elements = 10'001;
    for (const std::size_t most : {std::size_t{0}, std::size_t{8192}, std::size_t{1}}) {
        CAPTURE(most);
        gpu_ranks::restart();
        nccl::Options options = gpu_ranks::patient();
        options.staging_bytes = 1;  // the least that there is: 1 KiB for each rank
        options.most_staging_bytes = most;
        options.registration = nccl::Registration::windows;
        const auto outcomes = gpu_ranks::with_world(ranks, options, [&](const Comm& comm, nccl::World& world) {
            MeshRank<Mesh> rank(Mesh(ranks), comm, {}, world.streams());
            Sharded<Wide, ShardGradOp> layer(rank, "layer", {shape<Wide>(elements)});
            Model model{layer};
            const shardkit::gpu::TimelineRef stream(world.streams().compute);
            Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            const std::vector<bf16> ones(elements, bf16(1.0F));
            gpu::detail::check(cudaMemcpyAsync(gradients[Wide{}].data(), ones.data(), elements * sizeof(bf16),
                                               cudaMemcpyHostToDevice, stream.native()),
                               "cudaMemcpyAsync");
            stream.synchronize();
            accumulation.add(std::move(gradients));
            SGD optimizer{model, {.learning_rate = 1}};
            optimizer.step(reduce(std::move(accumulation), sum));
            std::vector<bf16> values(elements);
            layer.read_full(Wide{}, std::span<bf16>(values));
            expect(values == std::vector<bf16>(elements, bf16(-3.0F)), "the values");
        });
        CHECK(gpu_ranks::first_error(outcomes) == "");
        CHECK(standin::uneven_windows().empty());
        const std::size_t calls = standin::calls("ncclReduceScatter") / ranks;
        CHECK((most == 0 ? calls == 1 : most == 8192 ? calls > 5 && calls < 15 : calls > 20));
    }
}

}  // namespace reduction_lane_test
