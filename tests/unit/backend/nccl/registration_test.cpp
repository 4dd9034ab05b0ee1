// SPDX-License-Identifier: Apache-2.0
// Memory that NCCL is told of: how long it must stay, and what a GPU without enough of it ends with.
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/borrowed_communicator.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/verbs/split.hpp>

#include "../../thrown_message.hpp"
#include "gpu_ranks.hpp"
#include "small_trainer_runs.hpp"

namespace registration_test {

namespace {

using namespace shardkit;
using gpu_ranks::Comm;
using rank_checks::contains;

constexpr nccl::Registration registrations[] = {nccl::Registration::buffers, nccl::Registration::windows};

nccl::Options with(nccl::Registration registration) {
    nccl::Options options = gpu_ranks::impatient();
    options.registration = registration;
    return options;
}

}  // namespace

TEST_CASE("nccl: memory that a lent communicator knows is deregistered before it is freed, after a failure too") {
    for (const nccl::Registration registration : registrations) {
        for (const bool fails : {true, false}) {
            CAPTURE(fails);
            gpu_ranks::restart();
            const nccl::UniqueId id = nccl::UniqueId::create();
            std::vector<ncclComm_t> users(2);
            const auto outcomes = gpu_ranks::each_in_a_thread(2, [&](std::size_t rank) {
                REQUIRE(ncclCommInitRank(&users[rank], 2, nccl::native(id), static_cast<int>(rank)) == ncclSuccess);
                nccl::World world(nccl::Borrow{users[rank]}, with(registration));
                CHECK(split(Comm(world), 0, rank, "child").size() == 2);
                const auto memory = world.communicator().buffer<float>(100);
                if (fails) { world.abort(); }
            });
            CHECK(gpu_ranks::first_error(outcomes) == "");
            CHECK(standin::frees_in_use() == std::vector<std::string>{});
            CHECK(standin::live().registrations + standin::live().windows == 0);
            CHECK(standin::live().device_allocations == 0);
            for (const ncclComm_t comm : users) { CHECK(ncclCommDestroy(comm) == ncclSuccess); }
            CHECK(standin::live() == standin::Live{});
        }
    }
}

TEST_CASE("nccl: memory that a lent communicator does not let go of stays, and so do the streams") {
    if (rank_checks::sanitized) { return; }  // what is left behind would be reported as a leak
    gpu_ranks::restart();
    ncclComm_t user = nullptr;
    REQUIRE(ncclCommInitRank(&user, 1, nccl::native(nccl::UniqueId::create()), 0) == ncclSuccess);
    {
        nccl::World world(nccl::Borrow{user}, with(nccl::Registration::buffers));
        const auto memory = world.communicator().buffer<float>(100);
        standin::fail_next("ncclCommDeregister", ncclSystemError);
        world.abort();
    }
    CHECK(standin::frees_in_use() == std::vector<std::string>{});
    CHECK(standin::live().device_allocations > 0);
    CHECK(ncclCommAbort(user) == ncclSuccess);
}

TEST_CASE("nccl: too little memory for a chunk of NCCL's is a MemoryError that names the group") {
    struct Large : Param<"weight", float, 1U << 20U> {};
    for (const nccl::Registration registration : registrations) {
        gpu_ranks::restart();
        nccl::World world(nccl::UniqueId::create(), 1, 0, with(registration));
        MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{1}, Comm(world), {}, world.streams());
        standin::set_device_memory(standin::device_bytes(0) + (1U << 20U));
        CHECK(contains(thrown_message<MemoryError>([&] { const Sharded<Large, FullShard> none(rank, "blocks.4"); }),
                       "'blocks.4': no memory for 4194304 bytes of "));
        standin::set_device_memory(SIZE_MAX);
        standin::fail_next("ncclMemAlloc", ncclInternalError);
        CHECK(contains(thrown_message<CommError>([&] { const Sharded<Large, FullShard> none(rank, "blocks.4"); }),
                       "ncclMemAlloc returned 3"));
    }
}

TEST_CASE("nccl: the memory in which 16-bit sums are made is registered like the containers'") {
    for (const nccl::Registration registration : registrations) {
        gpu_ranks::restart();
        const nccl::World world(nccl::UniqueId::create(), 1, 0, with(registration));
        CHECK(standin::live().registrations + standin::live().windows == 1);
        CHECK(standin::live().device_allocations == 3);  // that chunk, and scratch of two streams
    }
}

TEST_CASE("nccl: whatever a rank's own tables hold, verbs find their memory at the same place of every window") {
    using Layer = Sharded<TensorList<float>, FullShard>;
    gpu_ranks::restart();
    nccl::Options options = gpu_ranks::patient();
    options.registration = nccl::Registration::windows;
    const auto outcomes = gpu_ranks::with_world(4, options, [](const gpu_ranks::Comm& comm, nccl::World& world) {
        MeshRank<DeviceMesh<dynamic>> rank(DeviceMesh{4}, comm, {}, world.streams());
        // Of 4 ranks each updates another number of runs, and has other pieces of the norm.
        std::vector<NamedTensor> tensors;
        for (std::size_t p = 0; p < 40; ++p) {
            tensors.emplace_back("p" + std::to_string(p), std::initializer_list<std::size_t>{7 + 400 * (p % 3) * p},
                                 ParameterAttributes{.decay = p % 2 == 0});
        }
        std::deque<Layer> layers;
        layers.emplace_back(rank, "first", TensorList<float>(tensors));
        const auto train = [&](Layer& layer) {
            Model model{layer};
            AdamW optimizer{model, {.learning_rate = 0.1}};
            for (int step = 0; step < 2; ++step) {
                static_cast<void>(layer.unshard());
                Accumulation accumulation{model};
                accumulation.add_zero(layer);
                optimizer.step(std::move(accumulation), {.max_norm = 1.0});
            }
            // What is made while the tables are there.
            layers.emplace_back(rank, layer.path() + "x", TensorList<float>(tensors));
        };
        train(layers[0]);
        train(layers[1]);
        train(layers[2]);
    });
    CHECK(gpu_ranks::first_error(outcomes) == "");
    CHECK(standin::uneven_windows() == std::vector<std::string>{});
    CHECK(standin::windows_left() == 0);
}

TEST_CASE("nccl: with CtaPolicy::zero every gather of a step may be made by copy engines, under every policy") {
    const small_trainer::Mesh mesh(4, 1, 1);
    nccl::Options options;
    options.registration = nccl::Registration::windows;
    for (const DynamicPolicy& policy :
         {DynamicPolicy(NoShard{}), DynamicPolicy(ShardOptimizer{}), DynamicPolicy(ShardGradOp{}),
          DynamicPolicy(FullShard{}), DynamicPolicy(HybridShard<2>{})}) {
        CAPTURE(policy.name());
        // All-gathers of that many steps, and how many of them copy engines may make.
        const auto gathers = [&](nccl::CtaPolicy cta_policy, std::size_t steps) {
            options.cta_policy = cta_policy;
            std::string error;
            small_trainer::on_nccl<float>(
                mesh, policy, {.microbatches = 2, .steps = steps}, small_trainer::all_paces[0], error, [] {},
                options);
            CHECK(error == "");
            return std::pair(standin::calls("ncclAllGather"), standin::calls("gathers by copy engines"));
        };
        const auto before = gathers(nccl::CtaPolicy::zero, 0);
        const auto with_steps = gathers(nccl::CtaPolicy::zero, 2);
        const std::size_t of_steps = with_steps.first - before.first;
        CHECK((of_steps > 0) == (policy.name() != DynamicPolicy(NoShard{}).name()));
        CHECK(with_steps.second - before.second == of_steps);
        CHECK(gathers(nccl::CtaPolicy::by_default, 2) == std::pair(with_steps.first, std::size_t{0}));
    }
}

}  // namespace registration_test
