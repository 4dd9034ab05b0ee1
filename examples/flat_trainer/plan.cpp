// SPDX-License-Identifier: Apache-2.0
// Bytes per parameter of GPT-2 on 8 ranks after each step of docs/from_llmc.md.
// g++ -std=c++20 -Iinclude examples/flat_trainer/plan.cpp -pthread -o example && ./example
#include <array>
#include <cstdio>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>
#include <string>
#include <vector>
namespace sk = shardkit;

constexpr std::size_t V = 50304, T = 1024, L = 12, C = 768;
const std::array<std::size_t, 16> sizes{V * C, T* C, L* C,         L* C,      L * 3 * C* C, L * 3 * C, L* C* C, L* C,
                                        L* C,  L* C, L * 4 * C* C, L * 4 * C, L* C * 4 * C, L* C,      C,       C};

// Tensors [first, last) of the sixteen, or a layer's slice of them.
sk::TensorList<sk::bf16> list_of(std::size_t first, std::size_t last, std::size_t layers) {
    std::vector<sk::NamedTensor> list;
    for (std::size_t i = first; i < last; ++i) { list.push_back({std::to_string(i), {sizes[i] / layers}}); }
    return sk::TensorList<sk::bf16>(list);
}

template <class Precision, class Policy>
void row(const char* name, bool by_block) {
    const sk::AxisGrid mesh = sk::DeviceMesh<8>{}.grid();
    const auto describe = [&](const char* path, std::size_t first, std::size_t last, std::size_t layers) {
        return sk::describe_group<sk::TensorList<sk::bf16>, Policy, Precision>(path, list_of(first, last, layers),
                                                                               mesh);
    };
    std::vector<sk::planner::GroupDescription> groups;
    if (by_block) {
        groups.push_back(describe("embedding", 0, 2, 1));
        for (std::size_t l = 0; l < L; ++l) { groups.push_back(describe("block", 2, 14, L)); }
        groups.push_back(describe("last", 14, 16, 1));
    } else {
        groups.push_back(describe("gpt2", 0, 16, 1));
    }
    const sk::planner::MemoryPlan plan = sk::planner::plan_memory(groups);
    double numel = 0;
    for (const auto& group : groups) { numel += static_cast<double>(group.numel); }
    const auto per = [&](sk::ByteCount bytes) { return static_cast<double>(bytes.value) / numel; };
    const double rest = per(plan.parameters) + per(plan.master) + per(plan.gradients) + per(plan.optimizer);
    std::printf("%-32s %6.2f %8.2f %6.2f\n", name, rest, per(plan.total()) - rest, per(plan.total()));
}

int main() {
    using Llmc = sk::Reduce16<sk::bf16>;
    using Default = sk::DefaultPrecision<sk::bf16>;
    std::printf("%-32s %6s %8s %6s\n", "bytes per parameter on a rank", "rest", "buffers", "peak");
    row<Llmc, sk::NoShard>("Reduce16: NoShard", false);
    row<Llmc, sk::ShardOptimizer>("Reduce16: ZeRO-1, adopted", false);
    row<Llmc, sk::ShardGradOp>("Reduce16: ZeRO-2, by block", true);
    row<Llmc, sk::FullShard>("Reduce16: ZeRO-3, one group", false);
    row<Llmc, sk::FullShard>("Reduce16: ZeRO-3, by block", true);
    row<Default, sk::FullShard>("Default: ZeRO-3, one group", false);
    row<Default, sk::FullShard>("Default: ZeRO-3, by block", true);
}
