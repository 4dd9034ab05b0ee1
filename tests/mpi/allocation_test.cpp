// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/split.hpp>

#include "interposed.hpp"
#include "unit/backend/verb_suite.hpp"
#include "unit/sharded/trainer.hpp"
#include "with_world.hpp"

namespace allocation_test {

namespace {

/// Of all threads, outside MPI.
std::atomic<std::size_t> allocations_seen{0};

void* counted_allocation(std::size_t bytes, std::size_t alignment) {
    if (!mpi_test::interposed::inside()) { ++allocations_seen; }
    if (void* memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment)) { return memory; }
    throw std::bad_alloc();
}

}  // namespace

}  // namespace allocation_test

// The other forms (arrays, no-throw) end in these by default.
void* operator new(std::size_t bytes) {
    return allocation_test::counted_allocation(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocation_test::counted_allocation(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace allocation_test {

namespace {

using namespace shardkit;
using namespace mpi_test;

/// Every verb, given to the stream one after another; small and large sums, and sums of other types.
template <class C>
void give_every_verb(const C& comm, const Stream& stream, std::span<const float> in, std::span<float> out,
                     std::span<bf16> half, std::span<const std::size_t> alike) {
    const std::size_t n = comm.size();
    const std::size_t next = (comm.rank() + 1) % n;
    const std::size_t previous = (comm.rank() + n - 1) % n;
    barrier(comm, stream);
    all_gather(comm, in.first(1000), out, stream);
    all_gather_in_place(comm, out, stream);
    reduce_scatter(comm, ReduceOp::sum, in, out.first(1000), stream);
    reduce_scatter(comm, ReduceOp::sum, std::span<const bf16>(half), out.first(1000), stream);
    reduce_scatter_in_place(comm, ReduceOp::max, out, stream);
    all_reduce(comm, ReduceOp::sum, in, out, stream);
    all_reduce(comm, ReduceOp::min, in.first(3), out.first(3), stream);
    all_reduce_in_place(comm, ReduceOp::sum, half, stream);
    broadcast(comm, out, n - 1, stream);
    all_to_all(comm, in, out, stream);
    all_to_all_uneven(comm, in, alike, out, alike, stream);
    send_receive(comm, in, next, out, previous, stream);
    if (n > 1 && comm.rank() == 0) { send(comm, in, 1, stream); }
    if (comm.rank() == 1) { receive(comm, out, 0, stream); }
}

void check_verbs_allocate_nothing(const mpi::Options& options) {
    CAPTURE(options.overlap);
    CAPTURE(options.message_elements);
    mpi::World world(MPI_COMM_WORLD, patient(options));
    const auto comm = split(world.communicator(), 0, mpi::Environment::rank(), "group");
    const std::vector<float> in(1000 * comm.size(), 1.0F);
    std::vector<float> out(in.size());
    std::vector<bf16> half(in.size());
    const std::vector<std::size_t> alike(comm.size(), 1000);
    const std::size_t before = allocations_seen;
    for (const auto& stream : {world.communication_stream(), world.reduction_stream()}) {
        for (int i = 0; i < 3; ++i) { give_every_verb(comm, stream, in, out, half, alike); }
        stream.synchronize();
    }
    // A rank that comes to the end tells the others, who keep what it says.
    MPI_Barrier(MPI_COMM_WORLD);
    const std::size_t after = allocations_seen;
    CHECK(before > 0);
    CHECK(after == before);
    world.finish();
}

template <class Policy>
void check_steps_allocate_nothing(Policy policy) {
    CAPTURE(Policy::name);
    const toy::Training training{
        .steps = 6, .samples = 24, .microbatches = 3, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    std::size_t before = 0;
    std::size_t after = 1;
    const toy::Hooks hooks{.before_step = [&](std::size_t, std::size_t step) {
        if (step == 2) { before = allocations_seen; }
        // Not the end: a rank that comes there tells the others, who keep what it says.
        if (step == training.steps - 1) { after = allocations_seen; }
    }};
    mpi::run(
        toy::Mesh(mpi::Environment::size(), 1, 1),
        [&](auto& rank) { toy::train_rank<Precision<float>>(rank, policy, training, hooks); }, {},
        patient({.overlap = true}));
    CHECK(before > 0);
    CHECK(after == before);
}

/// Steps that follow a schedule, of all threads of this process.
template <class Policy>
void check_scheduled_steps_allocate_nothing(Policy policy, const mpi::Options& options) {
    CAPTURE(Policy::name);
    CAPTURE(options.overlap);
    CAPTURE(options.separate_reductions);
    mpi::run(
        toy::Mesh(mpi::Environment::size(), 1, 1),
        [&](auto& rank) {
            using Layer = Sharded<TensorList<float>, Policy>;
            std::vector<Layer> layers;
            for (int i = 0; i < 3; ++i) {
                layers.emplace_back(rank, "layers." + std::to_string(i), TensorList<float>{{"w", {1000}}},
                                    typename Layer::Options{policy});
            }
            const Model model{layers};
            AdamW optimizer{model, {}};
            const auto step = [&] {
                Accumulation accumulation{model};
                for (auto& layer : layers) { const auto window = layer.unshard(); }
                for (std::size_t l = layers.size(); l > 0; --l) {
                    const auto window = layers[l - 1].unshard();
                    accumulation.add_zero(layers[l - 1]);
                }
                auto reduced = reduce(std::move(accumulation), mean);
                const auto norm = global_norm(reduced);
                optimizer.step(std::move(reduced), clip(norm, 1));
            };
            const Schedule recorded = schedule::record(model, step);
            const auto described = describe_groups(model);
            const Schedule ahead = schedule::prefetch(recorded, described);
            const Schedule better = schedule::overlap_reductions(ahead, described);
            const auto following = schedule::follow(model, schedule::gather_after_update(better, described));
            for (int s = 0; s < 2; ++s) { step(); }
            rank.synchronize();
            const std::size_t before = allocations_seen;
            for (int s = 0; s < 3; ++s) { step(); }
            rank.synchronize();
            const std::size_t after = allocations_seen;
            CHECK(before > 0);
            CHECK(after == before);
            MPI_Barrier(MPI_COMM_WORLD);  // a rank that comes to the end tells the others, who keep what it says
        },
        {}, patient(options));
}

}  // namespace

TEST_CASE("mpi: verbs allocate nothing, on a thread of the engine's own or not, not even on their first call") {
    for (const mpi::Options& options : ways) { check_verbs_allocate_nothing(options); }
    check_verbs_allocate_nothing({.overlap = true, .staging_bytes = 4000, .message_elements = 100});
    check_verbs_allocate_nothing({.sums = mpi::Sums::by_mpi, .overlap = true});
}

TEST_CASE("mpi: with overlap, training steps allocate nothing from the third on") {
    check_steps_allocate_nothing(NoShard{});
    check_steps_allocate_nothing(ShardOptimizer{});
    check_steps_allocate_nothing(ShardGradOp{});
    check_steps_allocate_nothing(FullShard{});
}

TEST_CASE("mpi: scheduled steps allocate nothing, with lanes of the engine's own, one or none") {
    for (const mpi::Options& options :
         {mpi::Options{.overlap = true}, mpi::Options{.overlap = true, .separate_reductions = false},
          mpi::Options{}}) {
        check_scheduled_steps_allocate_nothing(NoShard{}, options);
        check_scheduled_steps_allocate_nothing(ShardOptimizer{}, options);
        check_scheduled_steps_allocate_nothing(ShardGradOp{}, options);
        check_scheduled_steps_allocate_nothing(FullShard{}, options);
    }
}

}  // namespace allocation_test
