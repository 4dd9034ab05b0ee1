// SPDX-License-Identifier: Apache-2.0
// Groups whose optimizer states and masters lie in pinned host memory: the same bits as on the device, whenever each
// stream works, and checkpoints that go on in the other place.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/rule_optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "offload_trainer.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"
#include "unit/thrown_message.hpp"

namespace offload_test {

namespace {

namespace sk = shardkit;
using namespace offload_trainer;

constexpr std::size_t one_late[] = {3, 5, 6};
std::size_t turn = 0;

template <class T, sk::StateFormat Format = sk::StateFormat::full>
void check(const Run& run, sk::Offload offload, bool everywhere = false) {
    std::string error;
    const auto expected = trained<T, Format>(run, sk::Offload::none, all_paces[0], error);
    REQUIRE(error == "");
    REQUIRE(expected.front().size() > 1000);
    const std::size_t chosen = one_late[turn++ % 3];  // of slow builds another one each time
    for (std::size_t p = 0; p < 8; ++p) {
        const bool one = p == 3 || p == 5 || p == 6;
        if (test_size::reduced() ? p != chosen && !(everywhere && one) : !everywhere && p % 2 == 0 && p != 6) {
            continue;
        }
        CAPTURE(p);
        CHECK(trained<T, Format>(run, offload, all_paces[p], error) == expected);
        CHECK(error == "");
    }
}

constexpr sk::Offload ways[] = {sk::Offload::states, sk::Offload::update};

}  // namespace

TEST_CASE("offload: every policy trains the bits of states on the device, at all paces") {
    for (const sk::Offload way : ways) {
        CAPTURE(static_cast<int>(way));
        for (const sk::DynamicPolicy& policy :
             {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardGradOp{}),
              sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::NoShard{})}) {
            CAPTURE(std::string(policy.name()));
            check<sk::bf16>({.ranks = 3, .policy = policy}, way, policy.name() == sk::FullShard::name);
        }
        check<sk::bf16>({.ranks = 4, .policy = sk::DynamicPolicy(sk::HybridShard<2>{})}, way);
        check<sk::bf16>({.ranks = 4, .policy = sk::DynamicPolicy(sk::HybridOptimizer<2>{})}, way);
        check<float>({.ranks = 1, .policy = sk::DynamicPolicy(sk::NoShard{})}, way);
        check<double>({}, way);
    }
}

TEST_CASE("offload: split masters, none, rounded ones, and states in bf16 and in blocks") {
    for (const sk::Offload way : ways) {
        check<sk::bf16>({.master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::bf16>({.ranks = 3, .master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::block8>({.ranks = 3, .master = sk::MasterWeights::split}, way);
        check<sk::bf16, sk::StateFormat::block8>({.master = sk::MasterWeights::none, .rounding = {{7}}}, way);
        check<float, sk::StateFormat::block8>({}, way);
    }
}

TEST_CASE("offload: loss scales, skipped, frozen and mixed groups, updates in the backward pass, graphs") {
    for (const sk::Offload way : ways) {
        check<sk::bf16>({.loss_scale = true}, way);
        check<float>({.frozen_bias = true, .freezes_a_layer = true}, way);
        check<sk::bf16>({.skips = true}, way);
        check<sk::bf16>({.mixed = true}, way);
        check<sk::bf16, sk::StateFormat::block8>({.master = sk::MasterWeights::split, .in_backward = true}, way);
        check<sk::bf16>({.captured = true}, way, true);
    }
}

namespace {

/// Saves behind step 2 where a first place is, loads in a second one, and goes on.
template <class T, sk::StateFormat Format>
std::vector<std::vector<std::uint64_t>> resumed(const Run& run, sk::Offload first, sk::Offload second,
                                                sk::checkpoint::Staging staging) {
    const temporary_folder::Folder folder;
    std::vector<std::vector<std::uint64_t>> bits(run.ranks);
    CHECK(on_ranks(run.ranks, all_paces[6], [&](auto& rank, const auto&) {
              Trainer<T, Format> trainer(rank, run, first);
              for (std::size_t s = 0; s < 2; ++s) { trainer.step(s); }
              auto pending = sk::checkpoint::begin_save(rank, folder.path(), 2, *trainer.state, {.staging = staging});
              trainer.step(2);  // waits for the writer, or changes nothing of what it writes
              std::move(pending).commit();
          }) == "");
    CHECK(on_ranks(run.ranks, all_paces[1], [&](auto& rank, const auto&) {
              Trainer<T, Format> trainer(rank, run, second);
              trainer.step(5);  // what is loaded replaces states that are on their way
              sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, *trainer.state);
              for (std::size_t s = 2; s < run.steps; ++s) { trainer.step(s); }
              bits[rank.rank()] = trainer.bits();
          }) == "");
    return bits;
}
template <class T, sk::StateFormat Format = sk::StateFormat::full>
void check_resumed(const Run& run, sk::Offload way) {
    using enum sk::Offload;
    const auto expected = resumed<T, Format>(run, none, none, sk::checkpoint::Staging::none);
    CHECK(resumed<T, Format>(run, way, none, sk::checkpoint::Staging::none) == expected);
    CHECK(resumed<T, Format>(run, none, way, sk::checkpoint::Staging::copy) == expected);
    CHECK(resumed<T, Format>(run, way, way, sk::checkpoint::Staging::copy) == expected);
}

}  // namespace

TEST_CASE("offload: a save from one place goes on in the other, also one that is written beside a step") {
    for (const sk::Offload way : ways) {
        check_resumed<sk::bf16>({}, way);
        check_resumed<sk::bf16, sk::StateFormat::block8>({.ranks = 3, .master = sk::MasterWeights::split}, way);
    }
}

TEST_CASE("offload: buffers and the link's bytes are the plan's, and no copy of a step is of pageable memory") {
    const auto check_plan = [](auto format, const Run& run, sk::Offload way) {
        CHECK(on_ranks(run.ranks, all_paces[3], [&](auto& rank, const auto&) {
                  const int device = static_cast<int>(rank.rank());
                  const std::size_t pinned = standin::pinned_bytes(device);
                  Trainer<sk::bf16, format()> trainer(rank, run, way);
                  const sk::planner::PlanOptions options{.optimizer_states = {2, format()},
                                                         .offload_slot_bytes = sk::least_offload_slot_bytes};
                  const sk::Plan planned = sk::plan(*trainer.model, options);
                  const auto is_planned = [way](std::size_t given, sk::ByteCount bytes) {
                      // Updates on the host read some numbers beside, which no plan counts.
                      const std::size_t most = way == sk::Offload::update ? 1024 : 0;
                      return given >= bytes.value && given <= bytes.value + most;
                  };
                  CHECK(is_planned(standin::pinned_bytes(device) - pinned, planned.memory.host));
                  CHECK((planned.memory.host.value > 0) == (way != sk::Offload::none));
                  CHECK((planned.memory.master.value == 0 && planned.memory.optimizer.value == 0) ==
                        (way != sk::Offload::none));
                  trainer.step(0);
                  const standin::Copied before = standin::copied(device);
                  trainer.step(1);
                  const standin::Copied after = standin::copied(device);
                  CHECK(is_planned(after.to_device - before.to_device, planned.host_link.to_device));
                  CHECK(is_planned(after.to_host - before.to_host, planned.host_link.to_host));
                  CHECK(after.pageable == before.pageable);
                  CHECK((planned.host_link.pieces > 0) == (way != sk::Offload::none));
              }) == "");
    };
    using Full = std::integral_constant<sk::StateFormat, sk::StateFormat::full>;
    using Coded = std::integral_constant<sk::StateFormat, sk::StateFormat::block8>;
    check_plan(Full{}, {}, sk::Offload::none);
    for (const sk::Offload way : ways) {
        check_plan(Full{}, {}, way);
        check_plan(Coded{}, {.ranks = 3, .master = sk::MasterWeights::split}, way);
        check_plan(Full{}, {.policy = sk::DynamicPolicy(sk::NoShard{})}, way);
    }
}

TEST_CASE("offload: a step that fails in the middle leaves groups that refuse to train until they are loaded") {
    const Run run{.steps = 3};
    const temporary_folder::Folder folder;
    std::string error;
    const auto expected = trained<sk::bf16, sk::StateFormat::full>({.in_backward = false, .steps = 2},
                                                                   sk::Offload::none, all_paces[0], error);
    for (const sk::Offload way : ways) {
        std::vector<std::vector<std::uint64_t>> bits(run.ranks);
        CHECK(on_ranks(run.ranks, all_paces[1], [&](auto& rank, const auto&) {
                  Trainer<sk::bf16, sk::StateFormat::full> trainer(rank, run, way);
                  trainer.step(0);
                  sk::checkpoint::save(rank, folder.path(), 1, *trainer.state, {.replace = true});
                  standin::fail_after("cudaMemcpyAsync", 7, cudaErrorUnknown, static_cast<int>(rank.rank()));
                  CHECK_THROWS_AS(trainer.step(1), sk::gpu::Error);
                  const std::string refused = thrown_message<sk::UsageError>([&] { trainer.step(1); });
                  CHECK(has(refused, "but the optimizer step at"));
                  sk::checkpoint::load(rank, folder.file("step-00000001"), *trainer.state);
                  trainer.step(1);
                  bits[rank.rank()] = trainer.bits();
              }) == "");
        CHECK(bits == expected);
    }
}

TEST_CASE("offload: several optimizers of one model, each with its part of every group") {
    const auto run = [](sk::Offload way) {
        std::vector<std::vector<std::uint64_t>> bits(2);
        CHECK(on_ranks(2, all_paces[1], [&](auto& rank, const auto&) {
                  using Trained = Trainer<sk::bf16, sk::StateFormat::full>;
                  Trained trainer(rank, {}, way);
                  const auto of = [](bool weight) {
                      return [weight](auto, std::string_view name) { return (name == "weight") == weight; };
                  };
                  const auto another = sk::UpdatedBy::another;
                  sk::Lion lion{
                      *trainer.model, {.learning_rate = 0.0625}, {{.matches = of(true), .updated_by = another}}};
                  sk::AdamW adamw{
                      *trainer.model, {.learning_rate = 0.125}, {{.matches = of(false), .updated_by = another}}};
                  sk::CombinedOptimizer optimizer{*trainer.model, {lion, adamw}};
                  trainer.stepped_by = &optimizer;
                  for (std::size_t s = 0; s < 3; ++s) { trainer.step(s); }
                  bits[rank.rank()] = trainer.bits();
              }) == "");
        return bits;
    };
    const auto expected = run(sk::Offload::none);
    for (const sk::Offload way : ways) { CHECK(run(way) == expected); }
}

TEST_CASE("offload: what makes no sense, or has no memory, is refused with both sides") {
    const auto on_host = [](sk::Offload way) {
        return thrown_message<std::invalid_argument>([&] {
            sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
                using Layer = sk::Sharded<Group<float>::type, sk::FullShard>;
                typename Layer::Options options{};
                options.offload = way;
                const Layer layer(rank, "layer", {}, options);
            });
        });
    };
    CHECK(
        on_host(sk::Offload::states).find("an Offload on the engine 'threads', whose memory is the host's already") !=
        std::string::npos);
    CHECK(on_ranks(1, all_paces[7], [&](auto& rank, const auto&) {
              using Layer = sk::Sharded<Group<float>::type, sk::FullShard>;
              typename Layer::Options options{};
              options.offload = sk::Offload::states;
              Layer layer(rank, "layer", {}, options);
              sk::Model model{layer};
              standin::fail_next("cudaMallocHost", cudaErrorMemoryAllocation);
              const std::string full = thrown_message<sk::MemoryError>([&] { const sk::AdamW optimizer{model}; });
              CHECK(has(full, "exp_avg"));
              const std::string slots = thrown_message<std::invalid_argument>([&] {
                  using Rank = sk::MeshRank<Mesh>;
                  const Rank other(Mesh(1, 1, 1), rank.world(), {.offload_slot_bytes = 1000}, rank.streams());
              });
              CHECK(has(slots, "offload_slot_bytes is 1000, expected at least 32768"));
          }) == "");
    gpu_ranks::restart();
    std::string text;
    CHECK(on_ranks(2, all_paces[7], [&](auto& rank, const auto&) {
              using Layer = sk::Sharded<Group<float>::type, sk::FullShard>;
              typename Layer::Options options{};
              options.offload = rank.rank() == 0 ? sk::Offload::states : sk::Offload::none;
              const std::string its =
                  thrown_message<std::invalid_argument>([&] { const Layer layer(rank, "layer", {}, options); });
              CHECK(has(its, "offload"));
          }) == "");
}

}  // namespace offload_test
