// SPDX-License-Identifier: Apache-2.0
// The planner against closed forms from the literature, against literals, and against what the engine counted
// and the containers allocated. Recorded traffic itself is tested elsewhere, never with the planner.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include <shardkit/muon.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include "unit/plan/planned_and_logged.hpp"
#include "unit/sharded/custom_policies.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace plan_test {

namespace {

template <class E>
struct Weight : sk::Param<"weight", E, sk::dynamic> {};
struct Matrix : sk::Param<"matrix", float, 64, 48> {};
struct Vector : sk::Param<"vector", float, 100> {};
struct Bias16 : sk::Param<"bias", sk::bf16, 7> {};
using Pair = sk::Params<Matrix, Vector>;

/// One group of `numel` elements that every world size used here divides without padding.
template <class Policy, class Precision>
constexpr sk::Plan plan_of(std::size_t numel, std::size_t ranks,
                           const sk::planner::PlanOptions& options = {.norms_per_step = 0}, Policy policy = {}) {
    using W = Weight<typename Precision::Gather>;
    const auto grid = sk::DeviceMesh{ranks}.grid();
    const std::array group{sk::describe_group<W, Policy, Precision>(
        "model", sk::Shapes<sk::Params<W>>{sk::shape<W>(numel)}, grid, policy)};
    return sk::plan(group, grid, options);
}

/// Bytes per parameter at rest: without the buffers that live while windows and microbatches are open.
double at_rest(const sk::planner::MemoryPlan& m, std::size_t numel) {
    return static_cast<double>((m.parameters + m.master + m.gradients + m.optimizer).value) /
           static_cast<double>(numel);
}

}  // namespace

static_assert(plan_of<sk::NoShard, sk::Precision<float>>(1U << 20U, 1).traffic == sk::planner::TrafficPlan{});
static_assert(plan_of<sk::FullShard, sk::Precision<float>>(1U << 20U, 64).memory.parameters ==
              sk::ByteCount((4U << 20U) / 64));

/// Eight groups of 1,024 fp32 elements on four ranks, whose gradients are released at the update.
template <class Policy>
constexpr sk::planner::MemoryPlan released(std::size_t in_flight) {
    using W = Weight<float>;
    const auto grid = sk::DeviceMesh<4>{}.grid();
    sk::ShardedOptions<sk::Params<W>, Policy> options;
    options.gradient_release = sk::GradientRelease::at_update;
    std::array<sk::planner::GroupDescription, 8> groups;
    for (auto& group : groups) {
        group = sk::describe_group<W, Policy>("model", sk::Shapes<sk::Params<W>>{sk::shape<W>(1024)}, grid, options);
    }
    return sk::plan(groups, grid, {.in_flight = in_flight, .norms_per_step = 0}).memory;
}
// Of gradients in_flight whole buffers, where the sums lie beside them in_flight shards more, and nothing at rest.
static_assert(released<sk::NoShard>(2).gradients == sk::ByteCount(0));
static_assert(released<sk::NoShard>(1).gradient_buffers == sk::ByteCount(4096));
static_assert(released<sk::NoShard>(2).gradient_buffers == sk::ByteCount(2 * 4096));
static_assert(released<sk::ShardOptimizer>(1).gradient_buffers == sk::ByteCount(4096));
static_assert(released<sk::ShardGradOp>(1).gradient_buffers == sk::ByteCount(4096 + 1024));
static_assert(released<sk::FullShard>(2).gradient_buffers == sk::ByteCount(2 * (4096 + 1024)));
static_assert(released<sk::HybridShard<2>>(1).gradient_buffers == sk::ByteCount(4096 + 2048));
static_assert(released<sk::NoShard>(1).total() == sk::ByteCount(8 * 3 * 4096 + 4096));
static_assert(released<sk::FullShard>(1).total() == sk::ByteCount(8 * 3 * 1024 + 4096 + 4096 + 1024));

/// Qwen2.5-7B with every choice that makes memory smaller: what llmq 1.0 takes is 12.4 GiB on four GPUs and, with
/// offload, 24 GiB on one.
template <std::size_t N, std::size_t M = 1>
struct Qwen : sk::Param<"weight", sk::bf16, N, M> {};
template <std::size_t N>
struct QwenNorm : sk::Param<"norm", sk::bf16, N> {};
struct QwenQkv : sk::Param<"qkv", sk::bf16, 4608, 3584> {};
struct QwenBias : sk::Param<"qkv_bias", sk::bf16, 4608> {};
struct QwenUp : sk::Param<"up", sk::bf16, 37888, 3584> {};
struct QwenDown : sk::Param<"down", sk::bf16, 3584, 18944> {};
using QwenBlock = sk::Params<QwenNorm<7168>, QwenQkv, QwenBias, Qwen<3584, 3584>, QwenUp, QwenDown>;
using QwenHead = sk::Params<QwenNorm<3584>, Qwen<152064, 3584>>;

template <class Policy>
constexpr sk::Plan plan_qwen(std::size_t ranks, sk::Offload offload) {
    const auto grid = sk::DeviceMesh{ranks}.grid();
    const auto describe = [&]<class Group>(std::type_identity<Group>) {
        sk::ShardedOptions<Group, Policy> options;
        options.master = sk::MasterWeights::split;
        options.gradient_release = sk::GradientRelease::at_update;
        options.offload = offload;
        return sk::describe_group<Group, Policy>("group", {}, grid, options);
    };
    std::array<sk::planner::GroupDescription, 30> model;
    model.fill(describe(std::type_identity<QwenBlock>{}));
    model.front() = describe(std::type_identity<sk::Params<Qwen<152064, 3584>>>{});
    model.back() = describe(std::type_identity<QwenHead>{});
    return sk::plan(model, grid,
                    {.in_flight = 1, .optimizer_states = {2, sk::StateFormat::block8}, .norms_per_step = 0});
}
constexpr std::uint64_t tenths_of_gib(sk::ByteCount bytes) { return (bytes.value * 10 >> 30U) + 1; }  // rounded up
constexpr sk::Plan qwen_4 = plan_qwen<sk::FullShard>(4, sk::Offload::states);
constexpr sk::Plan qwen_1 = plan_qwen<sk::NoShard>(1, sk::Offload::states);
static_assert(qwen_4.numel == 7'615'616'512);
static_assert(tenths_of_gib(qwen_4.memory.total()) == 98 && tenths_of_gib(qwen_4.memory.host) == 76);
static_assert(tenths_of_gib(qwen_1.memory.total()) == 217 && tenths_of_gib(qwen_1.memory.host) == 302);
static_assert(qwen_4.memory.offload_slots == sk::ByteCount(std::uint64_t{64} << 20U));
// 2 bytes of rest, and 1.125 of each state, each way, for every element.
static_assert(qwen_1.host_link.to_host == sk::ByteCount(qwen_1.numel * 17 / 4));
static_assert(qwen_1.host_link.to_device == qwen_1.memory.host);
// Updates on the host have their slots there; 4 bytes of gradient and 2 of parameter go there, and 2 come back.
constexpr sk::Plan qwen_host = plan_qwen<sk::NoShard>(1, sk::Offload::update);
static_assert(qwen_host.memory.host == qwen_1.memory.host + qwen_1.memory.offload_slots);
static_assert(qwen_host.memory.total() + qwen_1.memory.offload_slots == qwen_1.memory.total());
static_assert(qwen_host.host_link.to_host == sk::ByteCount(qwen_1.numel * 6));
static_assert(qwen_host.host_link.to_device == sk::ByteCount(qwen_1.numel * 2));
// Without an offload, the same bytes lie on the GPU.
constexpr sk::Plan qwen_alone = plan_qwen<sk::NoShard>(1, sk::Offload::none);
static_assert(qwen_alone.memory.total() + qwen_1.memory.offload_slots == qwen_1.memory.total() + qwen_1.memory.host);
static_assert(qwen_alone.host_link == sk::planner::HostLinkPlan{} && qwen_alone.memory.host == sk::ByteCount(0));
TEST_CASE("a frozen group, and one without states and masters, has nothing to offload") {
    using W = Weight<float>;
    const auto grid = sk::DeviceMesh<4>{}.grid();
    sk::ShardedOptions<sk::Params<W>, sk::FullShard> options;
    options.offload = sk::Offload::states;
    const sk::Shapes<sk::Params<W>> shapes{sk::shape<W>(1024)};
    const std::array trained{sk::describe_group<W, sk::FullShard>("model", shapes, grid, options)};
    options.frozen = sk::Params<W>::all();
    const std::array frozen{sk::describe_group<W, sk::FullShard>("model", shapes, grid, options)};
    const auto check_nothing = [](const sk::Plan& plan) {
        CHECK(plan.memory.offload_slots == sk::ByteCount(0));
        CHECK(plan.memory.host == sk::ByteCount(0));
        CHECK(plan.host_link == sk::planner::HostLinkPlan{});
    };
    check_nothing(sk::plan(trained, grid, {.optimizer_states = 0}));
    check_nothing(sk::plan(frozen, grid));
    CHECK(sk::plan(trained, grid).memory.host == sk::ByteCount(2 * 4 * 256));
}

TEST_CASE("memory per parameter is that of the ZeRO paper, 16-bit throughout") {
    // 16-bit parameters, gradients and reduction, fp32 master and Adam states: 16; 4 + 12/n; 2 + 14/n; 16/n.
    using P = sk::Precision<sk::bf16, sk::bf16, sk::bf16, float>;
    constexpr std::size_t numel = std::size_t{7'500} << 20U;
    for (const std::size_t n : {2U, 16U, 64U}) {
        const auto ranks = static_cast<double>(n);
        CHECK(at_rest(plan_of<sk::NoShard, P>(numel, n).memory, numel) == doctest::Approx(16).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::ShardOptimizer, P>(numel, n).memory, numel) ==
              doctest::Approx(4 + 12 / ranks).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::ShardGradOp, P>(numel, n).memory, numel) ==
              doctest::Approx(2 + 14 / ranks).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::FullShard, P>(numel, n).memory, numel) ==
              doctest::Approx(16 / ranks).epsilon(1e-9));
    }
}

/// Bytes per parameter times N M, and peak bytes, of a bf16 parameter with fp32 sums, masters and AdamW's states on
/// M groups of 8 ranks.
template <class Policy>
constexpr std::uint64_t placed(std::size_t groups, std::size_t microbatches, bool peak) {
    using P = sk::Precision<sk::bf16, float, float, float>;
    constexpr std::size_t numel = std::size_t{1} << 30U;
    const sk::planner::MemoryPlan m =
        plan_of<Policy, P>(numel, 8 * groups, {.microbatches = microbatches, .norms_per_step = 0}).memory;
    const std::uint64_t bytes = peak ? m.total().value : (m.parameters + m.master + m.gradients + m.optimizer).value;
    return bytes / (numel / (8 * groups));
}
// With M groups: 2 / N + 12 / (N M) + 4 / N of HybridOptimizer, 18 / N of HybridShard, 2 / (N M) + 2 / N + 16 / (N
// M).
static_assert(placed<sk::HybridShard<8>>(4, 2, false) == 18 * 4);
static_assert(placed<sk::HybridOptimizer<8>>(4, 2, false) == 2 * 4 + 12 + 4 * 4);
static_assert(placed<sk::HybridOptimizer<8>>(1, 2, false) == 18);
static_assert(placed<sk::SecondaryShard<8>>(4, 2, false) == 2 + 2 * 4 + 16);
// While a window is open and a microbatch reduced: a full copy, full gradients in fp32.
static_assert(placed<sk::HybridOptimizer<8>>(4, 2, true) == 2 * 4 + 12 + 4 * 4 + (2 + 4) * 32);
static_assert(placed<sk::SecondaryShard<8>>(4, 2, true) == 2 + 2 * 4 + 16 + (2 + 4) * 32);

struct Stack : sk::Param<"stack", sk::bf16, 16, 64, 32>, sk::ep::Split {};
/// Eight times the peak bytes per element of a rank's experts, likewise, on 8 data ranks of which `ep` share them.
template <class Policy, std::size_t ep>
constexpr std::uint64_t peak_of_experts = [] {
    using P = sk::Precision<sk::bf16, float, float, float>;
    const auto grid = sk::ExpertMesh<sk::DeviceMesh<8>, ep>{}.grid();
    const std::array group{sk::describe_group<Stack, Policy, P>("experts", {}, grid)};
    const auto memory = sk::plan(group, grid, {.microbatches = 2, .norms_per_step = 0}).memory;
    return 8 * memory.total().value / (std::uint64_t{16} * 64 * 32 / ep);
}();
// 18 over the 8 / ep ranks with the same experts, as far as a policy cuts them, and a full copy and full gradients.
static_assert(peak_of_experts<sk::NoShard, 4> == 8 * 18);
static_assert(peak_of_experts<sk::ShardOptimizer, 4> == 8 * (2 + 4) + 4 * 12);
static_assert(peak_of_experts<sk::ShardGradOp, 4> == 8 * (2 + 4) + 4 * (4 + 12));
static_assert(peak_of_experts<sk::FullShard, 4> == 4 * 18 + 8 * (2 + 4));
static_assert(peak_of_experts<sk::FullShard, 8> == 8 * 18 + 8 * (2 + 4));
static_assert(peak_of_experts<sk::FullShard, 1> == 18 + 8 * (2 + 4));
static_assert(peak_of_experts<sk::HybridShard<4>, 2> == 4 * 18 + 8 * (2 + 4));
static_assert(peak_of_experts<sk::HybridOptimizer<4>, 2> == 4 * (2 + 4) + 2 * 12 + 8 * (2 + 4));
static_assert(peak_of_experts<sk::SecondaryShard<4>, 2> == 2 * 2 + 4 * 2 + 2 * 16 + 8 * (2 + 4));

/// Bytes of gradients of a rank's experts, likewise, of 32 slices: 4 on each of the 8 ranks.
template <class Policy, std::size_t ep>
constexpr std::uint64_t gradients_of_experts = [] {
    using P = sk::Precision<sk::bf16, float, float, float>;
    const auto grid = sk::ExpertMesh<sk::DeviceMesh<8>, ep>{}.grid();
    using Sliced = sk::TreeSums<Policy>;
    const std::array group{sk::describe_group<Stack, Sliced, P>("experts", {}, grid, Sliced{sk::Slices{32}})};
    const auto memory = sk::plan(group, grid, {.microbatches = 4, .norms_per_step = 0}).memory;
    return (memory.gradients + memory.gradient_buffers).value / (std::uint64_t{16} * 64 * 32 / ep);
}();
// Sums of 1, 2 and 4 slices, of each of the ranks that share experts: as much as without sharing them.
static_assert(gradients_of_experts<sk::NoShard, 1> == 3 * 4);
static_assert(gradients_of_experts<sk::NoShard, 4> == 4 * 3 * 4);
static_assert(gradients_of_experts<sk::ShardOptimizer, 8> == 8 * 3 * 4);

// The paper's own table: 7.5 billion parameters on 64 ranks, in gigabytes; the last figure is 1.875 there too.
template <class Policy>
constexpr std::uint64_t tenths_of_a_gigabyte = [] {
    using P = sk::Precision<sk::bf16, sk::bf16, sk::bf16, float>;
    const sk::planner::MemoryPlan m = plan_of<Policy, P>(7'500'000'000, 64).memory;
    return ((m.parameters + m.master + m.gradients + m.optimizer).value + 50'000'000) / 100'000'000;
}();
static_assert(tenths_of_a_gigabyte<sk::NoShard> == 1200);
static_assert(tenths_of_a_gigabyte<sk::ShardOptimizer> == 314);
static_assert(tenths_of_a_gigabyte<sk::ShardGradOp> == 166);
static_assert(tenths_of_a_gigabyte<sk::FullShard> == 19);

TEST_CASE("memory per parameter with fp32 gradients: 18; 6 + 12/n; 2 + 16/n; 18/n") {
    using P = sk::Precision<sk::bf16, float, float, float>;
    constexpr std::size_t numel = std::size_t{1} << 30U;
    for (const std::size_t n : {4U, 64U}) {
        const auto ranks = static_cast<double>(n);
        CHECK(at_rest(plan_of<sk::NoShard, P>(numel, n).memory, numel) == doctest::Approx(18).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::ShardOptimizer, P>(numel, n).memory, numel) ==
              doctest::Approx(6 + 12 / ranks).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::ShardGradOp, P>(numel, n).memory, numel) ==
              doctest::Approx(2 + 16 / ranks).epsilon(1e-9));
        CHECK(at_rest(plan_of<sk::FullShard, P>(numel, n).memory, numel) ==
              doctest::Approx(18 / ranks).epsilon(1e-9));
    }
}

TEST_CASE("traffic per step is the closed form of each policy") {
    using P = sk::Precision<sk::bf16, float>;
    constexpr std::uint64_t numel = std::uint64_t{5} << 32U;  // past 2^32 elements
    for (const std::uint64_t n : {2U, 4U, 64U}) {
        for (const std::uint64_t m : {1U, 3U}) {
            const sk::planner::PlanOptions options{.microbatches = m, .norms_per_step = 0};
            const std::uint64_t gather = numel * 2 / n * (n - 1);
            const std::uint64_t reduce = numel * 4 / n * (n - 1);
            const auto moved = [](const sk::Plan& plan) {
                std::uint64_t sum = 0;
                for (const sk::Verb verb : sk::planner::TrafficPlan::verbs) {
                    sum += plan.traffic.total(verb).moved.value;
                }
                return sum;
            };
            CHECK(moved(plan_of<sk::NoShard, P>(numel, n, options)) == 2 * reduce);
            CHECK(moved(plan_of<sk::ShardOptimizer, P>(numel, n, options)) == reduce + gather);
            CHECK(moved(plan_of<sk::ShardGradOp, P>(numel, n, options)) == m * reduce + gather);
            CHECK(moved(plan_of<sk::FullShard, P>(numel, n, options)) == m * (reduce + 2 * gather));
            const std::uint64_t half = n / 2;
            const auto hybrid =
                plan_of<sk::HybridShard<sk::dynamic>, P>(numel, n, options, sk::HybridShard<sk::dynamic>{half});
            const std::uint64_t inside = numel / half * (half - 1);
            CHECK(moved(hybrid) == m * inside * (4 + 2 * 2) + numel * 4 / half);
            // The all-reduce in two halves, of which the second gathers parameters.
            const auto placed = [&](auto policy) {
                return moved(plan_of<decltype(policy), P>(numel, n, options, policy));
            };
            const std::uint64_t piece = numel / n;
            CHECK(placed(sk::HybridOptimizer<sk::dynamic>{half}) == m * inside * (4 + 2 * 2) + piece * (4 + 2));
            CHECK(placed(sk::SecondaryShard<sk::dynamic>{half}) == m * inside * (4 + 2 * 2) + piece * (m * 4 + 2));
        }
    }
}

namespace {

constexpr sk::engine::Traits reads_within_hosts{.gathers = sk::engine::Crossing::to_hosts,
                                                .sums = sk::engine::Crossing::to_hosts};
constexpr sk::engine::Traits ring{.gathers = sk::engine::Crossing::ring, .sums = sk::engine::Crossing::ring};

/// That of all ranks of groups; the i-th rank of a group is on the host that its list says.
constexpr sk::detail::HostSpread spread_of(std::uint64_t ranks,
                                           std::initializer_list<std::initializer_list<int>> groups) {
    sk::detail::HostSpread spread{.ranks = ranks};
    for (const auto& hosts : groups) {
        spread.add_group(hosts.size(), [&](std::uint64_t i) { return hosts.begin()[i]; });
    }
    return spread;
}

// Each of 4 ranks has 2 on another host; its part goes there twice, or once; a ring leaves each of 2 hosts once.
constexpr sk::detail::HostSpread two_by_two = spread_of(4, {{0, 0, 1, 1}});
static_assert(two_by_two == sk::detail::HostSpread{4, 8, 4, 2});
// Hosts of 3, 2 and 1 ranks: 3 + 3 + 3 + 4 + 4 + 5 strangers, 6 parts go to 2 hosts each.
static_assert(spread_of(6, {{0, 0, 0, 1, 1, 2}}) == sk::detail::HostSpread{6, 22, 12, 3});
// Two groups, of which one is of a host.
static_assert(spread_of(4, {{0, 0}, {1, 2}}) == sk::detail::HostSpread{4, 2, 2, 2});
static_assert(spread_of(4, {{0, 0, 0, 0}}) == sk::detail::HostSpread{4, 0, 0, 0});
static_assert(spread_of(1, {{0}}) == sk::detail::HostSpread{1, 0, 0, 0});

constexpr sk::engine::Traits once_to_a_host{.gathered_all_reduce_addends = 100,
                                            .gathers = sk::engine::Crossing::to_hosts,
                                            .sums = sk::engine::Crossing::to_hosts,
                                            .small_gather = 100};
constexpr sk::engine::Traits in_a_ring{.gathers = sk::engine::Crossing::ring, .sums = sk::engine::Crossing::ring};

// Of 4 times 1000 bytes a rank receives 3000: from another host 2000, or, as its neighbour reads its half of them,
// 1000; on a ring 2 of 4 ranks all of them.
static_assert(sk::detail::gather_moved(4000, 4, {}, two_by_two) == sk::planner::MovedBytes{3000, 2000});
static_assert(sk::detail::gather_moved(4000, 4, once_to_a_host, two_by_two) == sk::planner::MovedBytes{3000, 1000});
static_assert(sk::detail::gather_moved(4000, 4, in_a_ring, two_by_two) == sk::planner::MovedBytes{3000, 1500});
static_assert(sk::detail::gather_moved(4000, 4) == sk::planner::MovedBytes{3000});
// What travels with the call goes to every rank.
static_assert(sk::detail::gather_moved(400, 4, once_to_a_host, two_by_two) == sk::planner::MovedBytes{300, 200});
static_assert(sk::detail::gather_moved(404, 4, once_to_a_host, two_by_two) == sk::planner::MovedBytes{303, 101});
// Addends go to the rank that adds them.
static_assert(sk::detail::scatter_moved(4000, 4, {}, two_by_two) == sk::planner::MovedBytes{3000, 2000});
static_assert(sk::detail::scatter_moved(4000, 4, once_to_a_host, two_by_two) == sk::planner::MovedBytes{3000, 2000});
static_assert(sk::detail::scatter_moved(4000, 4, in_a_ring, two_by_two) == sk::planner::MovedBytes{3000, 1500});
// Addends of 16 bits, sums of 32.
static_assert(sk::detail::all_reduce_moved(4000, 8000, 4, {}, two_by_two) ==
              sk::planner::MovedBytes{9000, 2000 + 4000});
static_assert(sk::detail::all_reduce_moved(4000, 8000, 4, once_to_a_host, two_by_two) ==
              sk::planner::MovedBytes{9000, 2000 + 2000});
static_assert(sk::detail::all_reduce_moved(4000, 8000, 4, in_a_ring, two_by_two) ==
              sk::planner::MovedBytes{9000, 1500 + 3000});
static_assert(sk::detail::all_reduce_moved(100, 100, 4, once_to_a_host, two_by_two) ==
              sk::planner::MovedBytes{300, 200});
// Sums of MPI's own beside gathers of the engine's.
static_assert(sk::detail::all_reduce_moved(4000, 4000, 4, {.gathers = sk::engine::Crossing::to_hosts}, two_by_two) ==
              sk::planner::MovedBytes{6000, 4000});
// Past 2^32, and of hosts of different sizes the mean over the ranks: 1000 ranks, 999 of them on one host.
static_assert(sk::detail::part_of(std::uint64_t{1} << 50U, std::uint64_t{1} << 20U, std::uint64_t{1} << 24U) ==
              std::uint64_t{1} << 46U);
static_assert(sk::detail::gather_moved(6'000'000'000'000, 6, {}, spread_of(6, {{0, 0, 0, 1, 1, 2}})) ==
              sk::planner::MovedBytes{5'000'000'000'000, 3'666'666'666'666});

/// Bytes between hosts of a group of 2^20 bf16 elements, whose gradients are summed in fp32, on 8 ranks; norms left
/// out.
template <class Policy>
std::uint64_t between_hosts(const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>& mesh,
                            std::size_t ranks_per_host, const sk::engine::Traits& engine, Policy policy = {}) {
    using W = Weight<sk::bf16>;
    const auto grid = mesh.grid();
    const std::array group{sk::describe_group<W, Policy, sk::Precision<sk::bf16, float>>(
        "model", sk::Shapes<sk::Params<W>>{sk::shape<W>(1U << 20U)}, grid, policy)};
    const sk::planner::TrafficPlan plan = sk::planner::plan_traffic(
        group, grid, {.norms_per_step = 0, .ranks_per_host = ranks_per_host, .engine = engine});
    std::uint64_t sum = 0;
    for (const sk::Verb verb : sk::planner::TrafficPlan::verbs) {
        CHECK(plan.total(verb).between_hosts <= plan.total(verb).moved);
        sum += plan.total(verb).between_hosts.value;
    }
    return sum;
}

}  // namespace

TEST_CASE("sums along a tree are sent as they are, where others are widened") {
    const sk::planner::PlanOptions options{
        .norms_per_step = 0, .ranks_per_host = 4, .engine = {.sums_travel_widened = true}};
    const auto moved = [&](const sk::Plan& plan) { return plan.traffic.total(sk::Verb::reduce_scatter); };
    using P = sk::Precision<sk::bf16>;
    CHECK(moved(plan_of<sk::FullShard, P>(1U << 20U, 8, options)).moved.value == (4U << 20U) / 8 * 7);
    // Into 16 bits too, and an all-reduce both ways.
    using Narrow = sk::Precision<sk::bf16, sk::bf16>;
    CHECK(moved(plan_of<sk::FullShard, Narrow>(1U << 20U, 8, options)).moved.value == (4U << 20U) / 8 * 7);
    const sk::Plan whole = plan_of<sk::NoShard, Narrow>(1U << 20U, 8, options);
    CHECK(whole.traffic.total(sk::Verb::all_reduce).moved.value == 2 * ((4U << 20U) / 8 * 7));
    const auto tree = moved(plan_of<sk::TreeSums<sk::FullShard>, P>(1U << 20U, 8, options));
    CHECK(tree.moved.value == (2U << 20U) / 8 * 7);
    CHECK(tree.between_hosts.value == (2U << 20U) / 8 * 4);
}

TEST_CASE("bytes between hosts per step, by hand: 8 ranks on hosts of 4, 2 and 1") {
    constexpr std::uint64_t gather = 2U << 20U;  // bytes of the gathered buffer
    constexpr std::uint64_t reduce = 4U << 20U;
    const sk::DeviceMesh dp8{std::size_t{8}, std::size_t{1}, std::size_t{1}};
    const auto full = [&](std::size_t each, const sk::engine::Traits& engine) {
        return between_hosts<sk::FullShard>(dp8, each, engine);
    };
    // Two gathers and a reduction. To every rank: what the 8 - each others have.
    CHECK(full(4, {}) == (2 * gather + reduce) / 8 * 4);
    CHECK(full(2, {}) == (2 * gather + reduce) / 8 * 6);
    CHECK(full(1, {}) == (2 * gather + reduce) / 8 * 7);
    CHECK(full(8, {}) == 0);
    CHECK(full(0, {}) == 0);
    // Where a host takes a gathered piece once, its ranks share that.
    CHECK(full(4, reads_within_hosts) == 2 * gather / 8 * 4 / 4 + reduce / 8 * 4);
    CHECK(full(2, reads_within_hosts) == 2 * gather / 8 * 6 / 2 + reduce / 8 * 6);
    CHECK(full(1, reads_within_hosts) == full(1, {}));
    // Of a ring 2 or 4 of its 8 links are between hosts, and 7 of 8 parts go over each.
    CHECK(full(4, ring) == (2 * gather + reduce) / 8 * 7 / 4);
    CHECK(full(2, ring) == (2 * gather + reduce) / 8 * 7 / 2);
    // An all-reduce adds a part of everybody's and gathers the sums.
    CHECK(between_hosts<sk::NoShard>(dp8, 4, {}) == 2 * reduce / 8 * 4);
    CHECK(between_hosts<sk::NoShard>(dp8, 4, reads_within_hosts) == reduce / 8 * 4 + reduce / 8);
    CHECK(between_hosts<sk::NoShard>(dp8, 4, ring) == 2 * (reduce / 8 * 7 / 4));
    // Shards within a host: only its quarter of the sums leaves it, for the replica on the other one.
    const sk::HybridShard<sk::dynamic> in_a_host{4};
    CHECK(between_hosts(dp8, 4, {}, in_a_host) == 2 * (reduce / 4) / 2);
    CHECK(between_hosts(dp8, 8, {}, in_a_host) == 0);
    // The same in two halves, of which one is of gathered elements; a piece is an eighth.
    CHECK(between_hosts(dp8, 4, {}, sk::HybridOptimizer<4>{}) == reduce / 8 + gather / 8);
    CHECK(between_hosts(dp8, 4, {}, sk::SecondaryShard<4>{}) == reduce / 8 + gather / 8);
    CHECK(between_hosts(dp8, 8, {}, sk::HybridOptimizer<4>{}) == 0);
    // In a ring of two, each rank has one link, to the other host.
    CHECK(between_hosts(dp8, 4, ring, sk::HybridOptimizer<4>{}) == reduce / 8 + gather / 8);
    // dp of 4 and tp of 2 beside each other in pairs: dp goes over every host, with one of its ranks on each.
    const sk::DeviceMesh with_tp{std::size_t{4}, std::size_t{2}, std::size_t{1}};
    CHECK(between_hosts<sk::FullShard>(with_tp, 2, {}) == (2 * gather + reduce) / 4 * 3);
    CHECK(between_hosts<sk::FullShard>(with_tp, 2, reads_within_hosts) == (2 * gather + reduce) / 4 * 3);
    // cp lies within a host, dp of 2 between two.
    const sk::DeviceMesh with_cp{std::size_t{2}, std::size_t{1}, std::size_t{4}};
    CHECK(between_hosts<sk::ShardOptimizer>(with_cp, 4, {}) == reduce / 2 + gather / 2);
}

TEST_CASE("a plan's table says what goes between hosts where there are any") {
    using P = sk::Precision<float>;
    const auto table = [&](std::size_t ranks_per_host) {
        return sk::traffic_table(plan_of<sk::FullShard, P>(1U << 18U, 4, {.ranks_per_host = ranks_per_host}).traffic);
    };
    CHECK(table(2) ==
          "  all_gather      dp                      2 calls       1.50 MiB       1.00 MiB between hosts\n"
          "  reduce_scatter  dp                      1 calls     768.00 KiB     512.00 KiB between hosts\n"
          "  all_reduce      world                   1 calls          840 B          560 B between hosts\n");
    CHECK(table(4) ==
          "  all_gather      dp                      2 calls       1.50 MiB\n"
          "  reduce_scatter  dp                      1 calls     768.00 KiB\n"
          "  all_reduce      world                   1 calls          840 B\n");
    static_assert(plan_of<sk::FullShard, P>(1U << 18U, 4, {.norms_per_step = 0, .ranks_per_host = 2})
                      .traffic.total(sk::Verb::all_gather)
                      .between_hosts == sk::ByteCount(1U << 20U));
}

TEST_CASE("buffers: slots are shared by groups of the same shapes, up to in_flight") {
    const auto grid = sk::DeviceMesh{std::size_t{4}}.grid();
    const auto group = [&](std::string_view path, std::size_t numel) {
        using W = Weight<float>;
        return sk::describe_group<W, sk::FullShard>(path, sk::Shapes<sk::Params<W>>{sk::shape<W>(numel)}, grid);
    };
    const std::array groups{group("a", 1024), group("b", 1024), group("c", 1024), group("d", 4096)};
    const auto buffers = [&](std::size_t in_flight) {
        return sk::planner::plan_memory(groups, {.in_flight = in_flight, .norms_per_step = 0});
    };
    CHECK(buffers(1).gather_buffers.value == (1024 + 4096) * 4);
    CHECK(buffers(2).gather_buffers.value == (2 * 1024 + 4096) * 4);
    CHECK(buffers(9).gather_buffers.value == (3 * 1024 + 4096) * 4);
    CHECK(buffers(2).gradient_buffers == buffers(2).gather_buffers);
    CHECK(buffers(2).reduce_buffers.value == 0);
}

TEST_CASE("bytes per parameter of Reduce16, by hand: llm.c's, on 8 ranks") {
    const auto grid = sk::DeviceMesh{std::size_t{8}}.grid();
    constexpr std::size_t numel = std::size_t{1} << 20U;
    const auto halves_per_parameter = [&](const auto& policy) {
        using W = Weight<sk::bf16>;
        const sk::Shapes<sk::Params<W>> shapes{sk::shape<W>(numel)};
        const std::array model{
            sk::describe_group<W, std::remove_cvref_t<decltype(policy)>, sk::Reduce16<sk::bf16>>("a", shapes, grid)};
        return 2 * sk::planner::plan_memory(model, {.norms_per_step = 0}).total().value / numel;
    };
    CHECK(halves_per_parameter(sk::NoShard{}) == 2 * (2 + 2 + 4 + 8));              // 16.00
    CHECK(halves_per_parameter(sk::ShardOptimizer{}) == 2 * (2 + 2) + 2 * 12 / 8);  // 5.50
    static_assert(sk::Reduce16<sk::fp16>::has_master && sk::Reduce16<sk::fp16>::reduces_in_place);
}

TEST_CASE("a frozen group has parameters and gathers, and nothing else") {
    const auto grid = sk::DeviceMesh{std::size_t{2}}.grid();
    auto frozen = sk::describe_group<Pair, sk::FullShard, sk::Precision<float>>("a", {}, grid);
    frozen.trainable = false;
    const sk::Plan plan = sk::plan(std::array{frozen}, grid, {.norms_per_step = 0});
    CHECK(plan.memory.gradients.value == 0);
    CHECK(plan.memory.optimizer.value == 0);
    CHECK(plan.memory.gradient_buffers.value == 0);
    CHECK(plan.traffic.total(sk::Verb::reduce_scatter).calls == 0);
    CHECK(plan.traffic.total(sk::Verb::all_gather).calls == 2);
}

TEST_CASE("a group is described before it exists, whatever its options: frozen parameters, packing and masters") {
    using Halves = sk::Params<Weight<sk::bf16>, Bias16>;
    using Frozen = decltype(sk::ShardedOptions<Halves, sk::FullShard>{}.frozen);
    for (const sk::Packing packing : {sk::Packing::aligned, sk::Packing::packed}) {
        for (const auto& frozen : {Frozen{}, Halves::mask<Bias16>(), Halves::all()}) {
            for (const auto master : {sk::MasterWeights::kept, sk::MasterWeights::none}) {
                const sk::ShardedOptions<Halves, sk::FullShard> options{
                    .packing = packing, .frozen = frozen, .master = master};
                const sk::Shapes<Halves> shapes{sk::shape<Weight<sk::bf16>>(100)};
                const auto described = sk::describe_group<Halves, sk::FullShard>(
                    "a", shapes, sk::DeviceMesh{std::size_t{2}}.grid(), options);
                CHECK(described.trainable == !frozen.all());
                CHECK(described.sizes.has_master == (master == sk::MasterWeights::kept));
                // 100 and 7 elements in two shards: each begins on 128 bytes, or only the shards do.
                CHECK(described.buffer_numel == (packing == sk::Packing::aligned ? 256 : 128));
                sk::threads::run(sk::DeviceMesh{std::size_t{2}}, [&](auto& rank) {
                    const sk::Sharded<Halves, sk::FullShard> group(rank, "a", shapes, options);
                    CHECK(sk::describe_group(group) == described);
                });
            }
        }
    }
    CHECK_THROWS_WITH_AS(
        static_cast<void>(sk::describe_group<Halves, sk::FullShard>("a", {sk::shape<Weight<sk::bf16>>(100)},
                                                                    sk::DeviceMesh{std::size_t{2}}.grid(),
                                                                    {.packing = sk::Packing::exact})),
        doctest::Contains("'a': Packing::exact given, but full_shard shards; expected aligned or packed"),
        std::invalid_argument);
}

TEST_CASE("errors: a hybrid group that does not divide dp") {
    const auto grid = sk::DeviceMesh{std::size_t{6}}.grid();
    const std::string message = thrown_message<std::invalid_argument>(
        [&] { static_cast<void>(sk::describe_group<Pair, sk::HybridShard<4>>("blocks.3", {}, grid)); });
    CHECK(message.starts_with("'blocks.3': policy hybrid_shard with shard groups of 4 does not divide dp = 6 ("));
    CHECK(message.find("plan_test.cpp:") != std::string::npos);
}

namespace {

/// Trains three groups for one steady step and compares plan and engine.
template <class Policy, class Precision>
void compare_with_engine(const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>& mesh, std::size_t microbatches,
                         Policy policy = {}) {
    CAPTURE(Policy::name);
    CAPTURE(mesh.describe());
    CAPTURE(microbatches);
    using E = typename Precision::Gather;
    std::vector<sk::TrafficLog> logs(mesh.size());
    std::vector<sk::Plan> plans(mesh.size());
    sk::threads::run(mesh, [&](auto& rank) {
        using Group = sk::Sharded<Weight<E>, Policy, Precision>;
        std::deque<Group> layers;
        for (const std::size_t numel : {1000U, 1000U, 77U}) {
            layers.emplace_back(rank, "layers." + std::to_string(layers.size()),
                                sk::Shapes<sk::Params<Weight<E>>>{sk::shape<Weight<E>>(numel)},
                                typename Group::Options{.policy = policy});
        }
        toy::log_steady_step(rank, layers, microbatches);
        logs[rank.rank()] = rank.traffic();
        plans[rank.rank()] = sk::plan(sk::Model{layers}, {.microbatches = microbatches});
    });
    for (const sk::Verb verb : sk::planner::TrafficPlan::verbs) {
        CAPTURE(name(verb));
        std::uint64_t moved = 0;
        std::uint64_t planned = 0;
        for (std::size_t r = 0; r < mesh.size(); ++r) {
            CHECK(logs[r].total(verb).calls == plans[r].traffic.total(verb).calls);
            CHECK(logs[r].total(verb).payload == plans[r].traffic.total(verb).payload);
            moved += logs[r].total(verb).moved.value;
            planned += plans[r].traffic.total(verb).moved.value;
        }
        // The plan is the mean over ranks, rounded down once per kind of call and rank.
        CHECK(moved >= planned);
        CHECK(moved <= planned + 8 * mesh.size());
    }
}

template <class Precision>
void compare_policies(std::size_t dp, std::size_t cp, std::size_t microbatches) {
    const sk::DeviceMesh mesh{dp, std::size_t{1}, cp};
    compare_with_engine<sk::NoShard, Precision>(mesh, microbatches);
    compare_with_engine<sk::ShardOptimizer, Precision>(mesh, microbatches);
    compare_with_engine<sk::ShardGradOp, Precision>(mesh, microbatches);
    compare_with_engine<sk::FullShard, Precision>(mesh, microbatches);
    compare_with_engine<sk::ShardOver<sk::FullShard, sk::Axes<sk::DpShard, sk::Cp>>, Precision>(mesh, microbatches);
    if (dp % 2 == 0) {
        compare_with_engine<sk::HybridShard<sk::dynamic>, Precision>(mesh, microbatches,
                                                                     sk::HybridShard<sk::dynamic>{2});
    }
}

}  // namespace

TEST_CASE("a plan of a model and its optimizer counts the states that there are") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        sk::Sharded<Pair, sk::FullShard> both{rank, "both"};
        sk::Sharded<Vector, sk::FullShard> vector{rank, "vector"};
        sk::Model model{both, vector};
        const std::size_t of_both = both.layout().shard_numel();
        const std::size_t of_vector = vector.layout().shard_numel();
        const auto planned = [&](auto& optimizer) { return sk::plan(model, optimizer).memory.optimizer.value; };
        sk::AdamW adamw{model};
        CHECK(planned(adamw) == 8 * (of_both + of_vector));
        CHECK(sk::plan(model, adamw).memory == sk::plan(model).memory);
        CHECK(sk::plan(model, adamw).traffic == sk::plan(model).traffic);
        sk::AMSGrad amsgrad{model};
        CHECK(planned(amsgrad) == 12 * (of_both + of_vector));
        sk::SGD sgd{model};
        CHECK(planned(sgd) == 0);
        sk::SGD momentum{model, {.rule = sk::Momentum::classical, .momentum = 0.5}};
        CHECK(planned(momentum) == 4 * (of_both + of_vector));
        sk::AdamW halves{model, sk::states_in<sk::StateFormat::bf16>};
        CHECK(planned(halves) == 4 * (of_both + of_vector));
        sk::AdamW codes{model, sk::states_in<sk::StateFormat::block8>};
        CHECK(planned(codes) == 2 * (of_both + of_both / 8 + of_vector + of_vector / 8));
        // Of groups that parts share, each part has states for all elements; of another's none.
        sk::Muon muon{model};
        CHECK(planned(muon) == 12 * of_both + 8 * of_vector);
        const auto is_matrix = [](auto, auto name) { return name == "matrix"; };
        const auto is_none = [](auto, auto name) { return name != "matrix"; };
        sk::Lion lion{model,
                      sk::states_in<sk::StateFormat::bf16>,
                      {},
                      {{.matches = is_matrix, .updated_by = sk::UpdatedBy::another}}};
        sk::AdamW of_matrix{model, {}, {{.matches = is_none, .updated_by = sk::UpdatedBy::another}}};
        sk::CombinedOptimizer combined{model, {lion, of_matrix}};
        CHECK(planned(combined) == (2 + 8) * of_both + 2 * of_vector);
        sk::Model part{vector};
        sk::AdamW of_part{part};
        CHECK(planned(of_part) == 8 * of_vector);
        CHECK(sk::describe_groups(model, of_part)[0].optimizer_states == sk::OptimizerStates(0));
    });
}

TEST_CASE("the traffic plan is what the engine counts under every legal pair of rows") {
    const sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic> mesh(6, 1, 1);
    for (const std::size_t within : {2U, 3U, 6U}) {
        toy::for_each_legal_row(within, [&](const sk::rules::PolicyValues& values) {
            CAPTURE(toy::words(values));
            const sk::DynamicPolicy policy(values);
            for (const std::size_t microbatches : {1U, 3U}) {
                CHECK(toy::difference(toy::planned_and_logged<sk::Precision<float>>(mesh, {policy}, microbatches),
                                      6) == "");
            }
            using Half = sk::Precision<float, sk::bf16, float, float>;
            CHECK(toy::difference(toy::planned_and_logged<Half>(mesh, {policy}, 2), 6) == "");
        });
    }
}

TEST_CASE("the traffic plan is what the engine counts") {
    for (const std::size_t microbatches : {1U, 3U}) {
        compare_policies<sk::Precision<float>>(1, 1, microbatches);
        compare_policies<sk::Precision<float>>(2, 1, microbatches);
        compare_policies<sk::Precision<float>>(3, 2, microbatches);
        compare_policies<sk::Precision<sk::bf16>>(4, 1, microbatches);
    }
}

}  // namespace plan_test
