// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of slices must fail: one rank that is given the sum of all slices, against ranks that
// take them under every policy. Sums of 16 slices on one rank have all levels of the stack.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <shardkit/shardkit.hpp>

namespace sk = shardkit;

namespace {

constexpr std::size_t slices = 16;
constexpr std::size_t numel = 403;
struct Weight : sk::Param<"weight", float, numel> {};
using Plain = sk::Precision<float>;
using Half = sk::Precision<float, sk::bf16, float, float>;

/// Of many magnitudes, so that sums in another order have other bits.
template <class Gradient>
Gradient given(std::size_t slice, std::size_t step, std::size_t i) {
    std::uint64_t x = (slice * 2 + step) * 4096 + i + 1;
    for (int round = 0; round < 3; ++round) { x = (x ^ x >> 29U) * 0xbf58476d1ce4e5b9ULL; }
    const auto magnitude = static_cast<float>(1U << (x & 15U));
    return static_cast<Gradient>((static_cast<float>(x >> 40U) / 16777216.0F - 0.5F) * magnitude);
}
template <class Gradient>
float halves(std::size_t first, std::size_t count, std::size_t step, std::size_t i) {
    if (count == 1) { return static_cast<float>(given<Gradient>(first, step, i)); }
    return halves<Gradient>(first, count / 2, step, i) + halves<Gradient>(first + count / 2, count / 2, step, i);
}

/// The reduced gradients of two steps.
template <class Precision>
std::vector<float> sums(std::size_t ranks, const sk::DynamicPolicy& policy) {
    using Gradient = typename Precision::Gradient;
    std::vector<float> all;
    sk::threads::run(sk::DeviceMesh{ranks, 1, 1}, [&](auto& rank) {
        using Layer = sk::Sharded<Weight, sk::DynamicPolicy, Precision>;
        Layer layer(rank, "layer", {}, typename Layer::Options{policy});
        sk::Model model{layer};
        for (std::size_t step = 0; step < 2; ++step) {
            const std::size_t microbatches = sk::slice_order(model).microbatches();
            sk::Accumulation accumulation{model, microbatches};
            for (std::size_t m = 0; m < microbatches; ++m) {
                auto gradients = accumulation.gradients(layer);
                const auto view = gradients[Weight{}];
                const std::size_t slice = sk::slice_of(model, m);
                for (std::size_t i = 0; i < numel; ++i) {
                    view.data()[i] = static_cast<Gradient>(static_cast<float>(view.data()[i]) +
                                                           static_cast<float>(given<Gradient>(slice, step, i)));
                }
                accumulation.add(std::move(gradients));
            }
            const auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(1));
            std::vector<float> mine(numel);
            reduced.read_full(layer, Weight{}, std::span(mine));
            if (rank.rank() == 0) { all.insert(all.end(), mine.begin(), mine.end()); }
        }
    });
    return all;
}

template <class Precision>
void check() {
    std::vector<float> expected;
    for (std::size_t i = 0; i < 2 * numel; ++i) {
        expected.push_back(halves<typename Precision::Gradient>(0, slices, i / numel, i % numel));
    }
    const sk::Slices cut{slices};
    for (const std::size_t ranks : {1U, 2U, 4U}) {
        const std::vector<sk::DynamicPolicy> policies{sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut}),
                                                      sk::DynamicPolicy(sk::TreeSums<sk::ShardOptimizer>{cut}),
                                                      sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut}),
                                                      sk::DynamicPolicy(sk::TreeSums<sk::HybridShard<sk::dynamic>>{
                                                          cut, sk::HybridShard<sk::dynamic>{(ranks + 1) / 2}})};
        for (const sk::DynamicPolicy& policy : policies) {
            if (sums<Precision>(ranks, policy) == expected) { continue; }
            std::printf("%zu ranks, %s: other sums\n", ranks, std::string(policy.name()).c_str());
            std::exit(1);
        }
    }
}

}  // namespace

int main() {
    check<Plain>();
    check<Half>();
    std::puts("one tree");
}
