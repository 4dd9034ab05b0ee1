// SPDX-License-Identifier: Apache-2.0
// A C-like main: objects of static storage instead of functions that are called, and exit() in the middle. Each is a
// process of its own, whose ranks are threads.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "captured_step.hpp"
#include "exit_status.hpp"
#include "gpu_ranks.hpp"
#include "temporary_folder.hpp"

namespace exit_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;

constexpr std::size_t elements = 101;

using Layer = Sharded<TensorList<float>, FullShard>;

/// What a C-like trainer has as globals, in the order of its making.
struct Trainer {
    Trainer(const nccl::UniqueId& id, std::size_t number)
        : world(id, 2, number, gpu_ranks::patient()),
          rank(DeviceMesh<dynamic>(2), Comm(world), {}, world.streams()),
          layer(rank, "layer", {{"w", {elements}}}),
          model(layer),
          optimizer(model, {.learning_rate = 0.5}) {}

    nccl::World world;
    MeshRank<DeviceMesh<dynamic>> rank;
    Layer layer;
    Model model;
    SGD optimizer;
};
std::array<std::optional<Trainer>, 2> trainers;

/// The mean of the ranks' gradients, 1 and 3, is 2: each step takes 1 off.
void step(Trainer& trainer) {
    const gpu::TimelineRef stream(trainer.rank.compute_stream());
    const std::vector<float> values(elements, trainer.rank.rank() == 0 ? 1.0F : 3.0F);
    Accumulation accumulation{trainer.model};
    auto gradients = accumulation.gradients(trainer.layer);
    gpu::detail::check(cudaMemcpyAsync(gradients.view("w").data(), values.data(), values.size() * sizeof(float),
                                       cudaMemcpyHostToDevice, stream.native()),
                       "cudaMemcpyAsync");
    stream.synchronize();
    accumulation.add(std::move(gradients));
    trainer.optimizer.step(reduce(std::move(accumulation), mean));
}

/// As `exit_status_of`; what the process said on its error stream comes beside.
struct End {
    int status;
    std::string said;
};
template <class F>
End end_of(const F& work) {
    gpu_ranks::restart();
    const temporary_folder::Folder folder;
    const std::string said = folder.file("said");
    const int status = exit_status_of([&] {
        if (std::freopen(said.c_str(), "w", stderr) == nullptr) { std::_Exit(98); }
        work();
    });
    return {status, temporary_folder::contents(folder.path())["said"]};
}

/// Whether rank 1 is made and idle: until then it uses what exit() ends, the objects of static storage.
std::atomic<bool> peer_is_idle = false;

/// Rank 1, which comes to no collective, and which nothing ends.
void begin_idle_peer(const nccl::UniqueId& id) {
    std::thread([id] {
        gpu::detail::check(cudaSetDevice(1), "cudaSetDevice");
        static_cast<void>(new Trainer(id, 1));
        peer_is_idle = true;
        peer_is_idle.notify_all();
        while (true) { std::this_thread::sleep_for(std::chrono::seconds(1)); }
    }).detach();
}

const std::string did_not_finish =
    "shardkit: the end of an nccl::World: it did not finish(): ended by exit() perhaps, or by another thread than "
    "its "
    "own\n";

}  // namespace

TEST_CASE("nccl: a C-like main with its objects as globals trains, finishes and ends by exit()") {
    if (rank_checks::sanitized) { return; }  // whose own end looks at what the process holds
    const End end = end_of([] {
        const nccl::UniqueId id = nccl::UniqueId::create();
        const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t number) {
            Trainer& trainer = trainers[number].emplace(id, number);
            for (int i = 0; i < 3; ++i) { step(trainer); }
            std::vector<float> values(elements);
            trainer.layer.read_full("w", std::span<float>(values));
            rank_checks::expect(values == std::vector<float>(elements, -3), "three steps");
            trainer.world.finish();
        });
        std::fputs(gpu_ranks::first_error(outcomes).c_str(), stderr);
        std::exit(7);
    });
    CHECK(end.said == "");
    CHECK(end.status == 7);
}

TEST_CASE("nccl: exit() with a World alive waits for no peer, whatever is under way") {
    if (rank_checks::sanitized) { return; }
    for (const bool graph : {false, true}) {
        CAPTURE(graph);
        const End end = end_of([&] {
            const nccl::UniqueId id = nccl::UniqueId::create();
            begin_idle_peer(id);
            Trainer& trainer = trainers[0].emplace(id, 0);
            const auto streams = trainer.world.streams();
            // A local of main, which exit() does not end: NCCL's own end would wait for it.
            std::optional<step_trainer::CapturedStep> captured;
            if (graph) {
                captured.emplace(streams, [&] { barrier(trainer.rank.world(), streams.communication); });
                captured->launch();
            }
            barrier(trainer.rank.world(), streams.communication);
            peer_is_idle.wait(false);
            std::exit(7);
        });
        CHECK(end.status == 7);
        CHECK(end.said == did_not_finish);
    }
}

TEST_CASE("nccl: exit() in another thread than a World's waits for no peer either") {
    if (rank_checks::sanitized) { return; }
    const End end = end_of([] {
        const nccl::UniqueId id = nccl::UniqueId::create();
        begin_idle_peer(id);
        std::thread([&] {
            Trainer& trainer = trainers[0].emplace(id, 0);
            barrier(trainer.rank.world(), trainer.world.streams().communication);
        }).join();
        peer_is_idle.wait(false);
        std::exit(7);
    });
    CHECK(end.status == 7);
    CHECK(end.said == did_not_finish);
}

TEST_CASE("nccl: a World that another thread ends is aborted, and gives all back") {
    gpu_ranks::restart();
    const nccl::UniqueId id = nccl::UniqueId::create();
    std::array<std::optional<nccl::World>, 2> worlds;
    const auto outcomes = gpu_ranks::each_in_a_thread(
        2, [&](std::size_t rank) { worlds[rank].emplace(id, 2, rank, gpu_ranks::patient()); });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    worlds[0].reset();  // one after the other: a finish() would wait for the other one
    worlds[1].reset();
    CHECK(standin::live() == standin::Live{});
    CHECK(standin::hangs() == 0);
}

}  // namespace exit_test
