// SPDX-License-Identifier: Apache-2.0
// What a rank on a GPU holds at most of device and of pinned memory, beside what planner::plan_memory says before
// there is a rank, to the byte: with states and masters on the device and in pinned memory. planned_memory_test.cpp
// of unit/steady has every other choice, on the host.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/memory/memory_copies.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "paced_ranks.hpp"

namespace planned_memory_test {

namespace {

namespace sk = shardkit;
using List = sk::TensorList<sk::bf16>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Account {
    std::size_t bytes = 0;
    std::size_t peak = 0;
};
thread_local Account of_verbs;  // of this rank's thread
thread_local Account of_own_kernels;

/// Memory that is on an account while it lives.
std::shared_ptr<void> counted(std::shared_ptr<void> memory, std::size_t bytes, Account& account) {
    account.bytes += bytes;
    account.peak = std::max(account.peak, account.bytes);
    void* const data = memory.get();
    return {data, [kept = std::move(memory), bytes, &account](void*) { account.bytes -= bytes; }};
}

/// A rank's verbs, whose memory is counted.
class Counted final : public sk::host::DecoratedVerbs {
  public:
    using DecoratedVerbs::DecoratedVerbs;

    std::shared_ptr<void> place(std::size_t bytes) const override {
        return counted(DecoratedVerbs::place(bytes), bytes, of_verbs);
    }
    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        return counted(DecoratedVerbs::place_local(bytes), bytes, of_own_kernels);
    }

  private:
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const Counted>(std::move(verbs));
    }
};

constexpr sk::StateFormat format = sk::StateFormat::block8;
using Layer = sk::Sharded<List, sk::DynamicPolicy>;

void check(sk::Rank& rank, const typename Layer::Options& options) {
    const List tensors{{"weight", {263, 61}}, {"bias", {61}}, {"one", {1}}};
    const std::vector<std::string> paths{"layers.0", "layers.1", "layers.2"};
    std::vector<sk::planner::GroupDescription> described;
    for (const std::string& path : paths) {
        described.push_back(sk::describe_group<List, sk::DynamicPolicy>(path, tensors, rank.grid(), options));
    }
    const sk::planner::MemoryPlan planned =
        sk::planner::plan_memory(described, {.microbatches = 2,
                                             .optimizer_states = {2, format},
                                             .offload_slot_bytes = rank.options().offload_slot_bytes,
                                             .engine = rank.world().traits()});
    const auto device = static_cast<int>(rank.rank());
    const std::size_t pinned = standin::pinned_bytes(device);
    of_verbs = of_own_kernels = {};
    {
        std::vector<Layer> layers;
        for (const std::string& path : paths) { layers.emplace_back(rank, path, tensors, options); }
        sk::Model model{layers};
        sk::AdamW optimizer{model, sk::states_in<format>};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model, 2};
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                for (Layer& layer : layers) {
                    auto window = layer.unshard();
                    auto gradients = accumulation.gradients(layer);
                    layer.reshard(std::move(window));
                    accumulation.add(std::move(gradients));
                }
            }
            optimizer.step(std::move(accumulation), {.max_norm = 1});
        }
        // Staging and the engine's kind are the World's own.
        CHECK(of_verbs.peak == (planned.total() - planned.offload_slots - planned.staging - planned.engine).value);
        // Tables of launches, and numbers that updates on the host read, are small, and no plan counts them.
        constexpr std::size_t tables = 4096;
        CHECK(of_own_kernels.peak >= planned.offload_slots.value);
        CHECK(of_own_kernels.peak < planned.offload_slots.value + tables);
        const std::size_t on_host = standin::pinned_bytes(device) - pinned;
        CHECK(on_host >= planned.host.value);
        CHECK(on_host <= planned.host.value + (options.offload == sk::Offload::update ? 1024U : 0U));
        CHECK((planned.host.value > 0) == (options.offload != sk::Offload::none));
    }
}

}  // namespace

TEST_CASE("nccl: what a rank holds at most is the plan to the byte, with states and masters here and there") {
    for (const std::size_t ranks : {1U, 2U, 3U}) {
        for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                                sk::DynamicPolicy(sk::ShardOptimizer{})}) {
            for (const auto master : {sk::MasterWeights::kept, sk::MasterWeights::split, sk::MasterWeights::none}) {
                CAPTURE(ranks);
                CAPTURE(std::string(policy.name()));
                CAPTURE(static_cast<int>(master));
                const auto on_rank = [&](auto& its, const auto&) {
                    const sk::Communicator world(std::make_shared<const Counted>(its.world().verbs()));
                    for (const auto offload : {sk::Offload::none, sk::Offload::states, sk::Offload::update}) {
                        CAPTURE(static_cast<int>(offload));
                        sk::MeshRank<Mesh> rank{its.mesh(), world, its.options(), its.streams()};
                        typename Layer::Options options{policy};
                        options.master = master;
                        options.offload = offload;
                        check(rank, options);
                    }
                };
                CHECK(paced_ranks::run(Mesh(ranks, 1, 1), paced_ranks::one_lazy[0],
                                       {.offload_slot_bytes = sk::least_offload_slot_bytes}, on_rank) == "");
            }
        }
    }
}

}  // namespace planned_memory_test
