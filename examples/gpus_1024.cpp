// SPDX-License-Identifier: Apache-2.0
// What docs/1024_gpus.md predicts: a model of 70.5 billion parameters under four policies on 1,024 GPUs.
// g++ -std=c++20 -Iinclude examples/gpus_1024.cpp -pthread -o example && ./example
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include <cstdio>
#include <string>
#include <vector>
namespace sk = shardkit;

constexpr std::size_t width = 8192, inner = 28672, kv = 1024, words = 128256, layers = 80;
struct Qkv : sk::Param<"qkv", sk::bf16, width + 2 * kv, width> {};
struct Out : sk::Param<"out", sk::bf16, width, width> {};
struct GateUp : sk::Param<"gate_up", sk::bf16, 2 * inner, width> {};
struct Down : sk::Param<"down", sk::bf16, width, inner> {};
struct Norms : sk::Param<"norms", sk::bf16, 2, width> {};
using Block = sk::Params<Qkv, Out, GateUp, Down, Norms>;
struct Table : sk::Param<"table", sk::bf16, words, width> {};

constexpr std::size_t ranks = 1024, per_node = 8;

template <class Policy>
void predict(const std::string& name, const Policy& policy, bool by_nccl = false) {
    const sk::AxisGrid mesh = sk::DeviceMesh<ranks>{}.grid();
    std::vector<sk::planner::GroupDescription> groups{
        sk::describe_group<Table, Policy>("embedding", {}, mesh, policy)};
    for (std::size_t l = 0; l < layers; ++l) {
        groups.push_back(sk::describe_group<Block, Policy>("block", {}, mesh, policy));
    }
    groups.push_back(sk::describe_group<Table, Policy>("head", {}, mesh, policy));

    // What nccl::traits_of(options, ranks) says of a World, without its header: rings, 16-bit sums in fp32 or by
    // NCCL, staging of 4 MiB for each rank, and communicators of 32 channels of 12 MiB.
    constexpr std::size_t mib = std::size_t{1} << 20U;
    const sk::engine::Traits nccl{.sums_travel_widened = true,
                                  .gathers = sk::engine::Crossing::ring,
                                  .sums = sk::engine::Crossing::ring,
                                  .adds_16_bits = by_nccl,
                                  .staging_bytes = 64 * mib,
                                  .reduction_staging = 32 * mib,
                                  .most_reduction_staging = 4 * mib * ranks,
                                  .communicator_bytes = 32 * 12 * mib,
                                  .separates_reductions = true};
    const sk::Plan plan = sk::plan(groups, mesh, {.ranks_per_host = per_node, .engine = nccl});

    // Nodes of 8 GPUs: 5 us and 450 GB/s within, 15 us and 50 GB/s for each GPU between them.
    const sk::planner::TimeModel machines{sk::planner::TimeModel::links({5e-6, 450e9}),
                                          sk::planner::TimeModel::links({15e-6, 50e9}), per_node};
    const sk::planner::TimeModel no_latency{sk::planner::TimeModel::links({0, 450e9}),
                                            sk::planner::TimeModel::links({0, 50e9}), per_node};
    // 4,096 tokens on each GPU, 6 operations for each parameter and token, 40 % of 989 TFLOP/s.
    const double compute = 6.0 * static_cast<double>(plan.numel) * 4096 / (0.4 * 989e12);
    const auto gib = [](sk::ByteCount bytes) { return static_cast<double>(bytes.value) / (1U << 30U); };
    std::printf(
        "%-26s %6.1f GiB (%.2f staging) + %.2f GiB of NCCL; %5.2f s of messages, %5.2f s without latency, "
        "%.2f s of products\n",
        (name + (by_nccl ? ", by_nccl" : "")).c_str(), gib(plan.memory.total()), gib(plan.memory.staging),
        gib(plan.memory.communicators), sk::planner::communication_seconds(plan.traffic, mesh, machines),
        sk::planner::communication_seconds(plan.traffic, mesh, no_latency), compute);
}

int main() {
    for (const bool by_nccl : {false, true}) {
        predict("full_shard", sk::FullShard{}, by_nccl);
        for (const std::size_t group : {std::size_t{256}, std::size_t{64}, std::size_t{32}}) {
            predict("hybrid_shard<" + std::to_string(group) + ">", sk::HybridShard<sk::dynamic>{group}, by_nccl);
        }
    }
    predict("shard_optimizer", sk::ShardOptimizer{});
}
