// SPDX-License-Identifier: Apache-2.0
// What a rank allocates at most beside what planner::plan_memory says before there is a rank, to the byte, for every
// choice of states, masters, gathers, release of gradients and policy.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>

#include "unit/steady/allocation_account.hpp"

namespace planned_memory_test {

namespace {

namespace sk = shardkit;
using List = sk::TensorList<sk::bf16>;
using Mesh = sk::ExpertMesh<sk::DeviceMesh<sk::dynamic>>;

/// Verbs with an account of buffers that has neither the small tables of launches nor what splits take: no plan
/// counts them.
class Accounted final : public sk::host::DecoratedVerbs {
  public:
    using DecoratedVerbs::DecoratedVerbs;

    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        const steady::OffAccount off;
        const auto memory = std::make_shared<sk::HostBuffer<std::uint8_t>>(bytes);
        return {memory, memory->data()};
    }

  private:
    void around(const sk::Call& call, sk::host::Memory /*delivered*/, const sk::Stream& /*stream*/,
                const Inner& inner) const override {
        if (call.signature.verb != sk::Verb::split) { return inner(); }
        const steady::OffAccount off;
        inner();
    }
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const Accounted>(std::move(verbs));
    }
};

/// Three groups that are alike, one with another size, one with fewer elements than ranks, and one of experts.
const std::vector<List>& groups() {
    static const List block{{"weight", {67, 13}}, {"bias", {33}}, {"one", {1}}};
    static const std::vector<List> all{{{"table", {211, 7}}},
                                       block,
                                       block,
                                       block,
                                       {{"one", {1}}},
                                       {{"up", {4, 16, 6}, {.experts = true}}, {"down", {4, 32}, {.experts = true}}}};
    return all;
}

struct Choice {
    sk::DynamicPolicy policy;
    sk::MasterWeights master;
    sk::GradientRelease release;
};

/// Returns by how much other large blocks than buffers have grown.
template <class Gather, sk::StateFormat Format>
std::size_t check(sk::Rank& rank, const Choice& choice) {
    using Precision = sk::Precision<Gather, sk::bf16>;
    using Layer = sk::Sharded<List, sk::DynamicPolicy, Precision>;
    typename Layer::Options options{choice.policy};
    options.master = choice.master;
    options.gradient_release = choice.release;
    const bool releases = choice.release == sk::GradientRelease::at_update;
    const std::size_t microbatches = releases ? 1 : 2;

    std::vector<std::string> paths;
    for (std::size_t i = 0; i < groups().size(); ++i) { paths.push_back("layers." + std::to_string(i)); }
    std::vector<sk::planner::GroupDescription> described;
    for (std::size_t i = 0; i < groups().size(); ++i) {
        described.push_back(
            sk::describe_group<List, sk::DynamicPolicy, Precision>(paths[i], groups()[i], rank.grid(), options));
    }
    const std::size_t planned = sk::planner::plan_memory(described, {.microbatches = microbatches,
                                                                     .in_flight = rank.options().in_flight,
                                                                     .optimizer_states = {2, Format},
                                                                     .norms_per_step = releases ? 0U : 1U,
                                                                     .engine = rank.world().traits()})
                                    .total()
                                    .value;

    steady::Account& account = steady::account;
    const std::size_t others = account.large_bytes - account.large_buffer_bytes;
    const std::size_t at_start = account.buffer_bytes;
    account.buffer_peak = at_start;
    std::vector<Layer> layers;
    for (std::size_t i = 0; i < groups().size(); ++i) { layers.emplace_back(rank, paths[i], groups()[i], options); }
    for (Layer& layer : layers) {
        layer.initialize([](auto, auto, auto i) { return 0.01 * static_cast<double>(i % 31); });
    }
    sk::Model model{layers};
    sk::AdamW optimizer{model, sk::states_in<Format>, {.learning_rate = 0.02}};
    for (int step = 0; step < 2; ++step) {
        sk::Accumulation accumulation{model, microbatches};
        if (releases) { optimizer.step_in_backward(accumulation); }
        for (std::size_t microbatch = 0; microbatch < microbatches; ++microbatch) {
            for (Layer& layer : layers) { const auto window = layer.unshard(); }
            for (std::size_t l = layers.size(); l-- > 0;) {
                auto window = layers[l].unshard();
                auto gradients = accumulation.gradients(layers[l]);
                layers[l].reshard(std::move(window));
                accumulation.add(std::move(gradients));
            }
        }
        if (releases) {
            optimizer.step(std::move(accumulation));
        } else {
            optimizer.step(std::move(accumulation), {.max_norm = 1});
        }
    }
    CHECK(account.buffer_peak - at_start == planned);
    CHECK(account.buffer_bytes - at_start == planned);
    return account.large_bytes - account.large_buffer_bytes - others;
}

/// Every choice of a group that gathers `Gather`. Codes go with kept masters alone: coded_gathers_test.cpp.
template <class Gather, sk::StateFormat Format>
void check_choices(std::size_t ranks, const sk::DynamicPolicy& policy) {
    using enum sk::MasterWeights;
    const std::vector<sk::MasterWeights> masters =
        sk::Precision<Gather, sk::bf16>::gathers_codes ? std::vector{kept} : std::vector{kept, split, none};
    // Two ranks of each pair share the experts.
    sk::threads::run(Mesh{sk::DeviceMesh{ranks}, ranks % 2 == 0 ? 2U : 1U}, [&](auto& its) {
        bool first = true;  // in which the World's log of traffic gets its memory
        for (const sk::MasterWeights master : masters) {
            for (const auto release : {sk::GradientRelease::never, sk::GradientRelease::at_update}) {
                for (const std::size_t in_flight : {1U, 2U, 3U}) {
                    CAPTURE(static_cast<int>(master));
                    CAPTURE(static_cast<int>(release));
                    CAPTURE(in_flight);
                    const sk::Communicator world(std::make_shared<const Accounted>(its.world().verbs()));
                    sk::MeshRank<Mesh> rank{its.mesh(), world, {.in_flight = in_flight}, its.streams()};
                    const std::size_t grown = check<Gather, Format>(rank, {policy, master, release});
                    CHECK((first || grown == 0));
                    first = false;
                }
            }
        }
    });
}

template <class Gather>
void check_formats() {
    for (const sk::DynamicPolicy& policy :
         {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
          sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
          sk::DynamicPolicy(sk::HybridShard<2>{}), sk::DynamicPolicy(sk::HybridOptimizer<2>{}),
          sk::DynamicPolicy(sk::SecondaryShard<2>{})}) {
        for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
            const bool hybrid = policy.shard_group(6) != 6;
            if (hybrid ? ranks % 2 != 0 : ranks == 4) { continue; }
            const bool cut = policy.values().across_groups.states == sk::Placement::sharded;
            if (cut && sk::Precision<Gather, sk::bf16>::gathers_codes) { continue; }
            CAPTURE(ranks);
            CAPTURE(std::string(policy.name()));
            check_choices<Gather, sk::StateFormat::full>(ranks, policy);
            check_choices<Gather, sk::StateFormat::bf16>(ranks, policy);
            check_choices<Gather, sk::StateFormat::block8>(ranks, policy);
        }
    }
}

}  // namespace

TEST_CASE("what a rank allocates at most is the plan to the byte: gathers of bf16, masters kept, split and none") {
    check_formats<sk::bf16>();
}

TEST_CASE("what a rank allocates at most is the plan to the byte: gathers of codes") {
    check_formats<sk::e4m3>();
    check_formats<sk::block_int8>();
}

}  // namespace planned_memory_test
