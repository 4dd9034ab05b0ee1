// SPDX-License-Identifier: Apache-2.0
// A trainer that already has its parameters in one packed allocation, as llm.c does: first adopted in place
// (NoShard: the trainer's own memory is what is reduced and updated), then handed over and sharded (FullShard).
// g++ -std=c++20 -Iinclude examples/05_wrap_flat_buffer.cpp -pthread -o example && ./example
#include <shardkit/shardkit.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace sk = shardkit;

// The existing trainer: one allocation for all parameters, one for all gradients, and pointers into them.
constexpr std::size_t vocabulary = 50;
constexpr std::size_t channels = 12;
constexpr std::size_t wte_numel = vocabulary * channels;
constexpr std::size_t all_numel = wte_numel + channels;

std::vector<float> load_checkpoint() {
    std::vector<float> parameters(all_numel);
    for (std::size_t i = 0; i < all_numel; ++i) { parameters[i] = std::cos(static_cast<float>(i)); }
    return parameters;
}

void backward(const float* parameters, float* gradients, std::size_t rank) {
    for (std::size_t i = 0; i < all_numel; ++i) {
        gradients[i] += parameters[i] * 0.1F + std::sin(static_cast<float>(i + 31 * rank));
    }
}

// What shardkit needs to know of it.
struct Wte : sk::Param<"wte", float, vocabulary, channels> {};
struct Bias : sk::Param<"bias", float, channels> {};
using Model = sk::Params<Wte, Bias>;

template <class Layer>
void train(Layer& layer, std::size_t rank) {
    sk::Model model{layer};
    sk::AdamW optimizer{model, {.learning_rate = 1e-2}};
    for (int step = 0; step < 10; ++step) {
        sk::Accumulation accumulation{model};
        auto w = layer.unshard();
        auto g = accumulation.gradients(layer);
        // Both layers lie packed, so the first parameter's pointer is the whole buffer's, as it always was.
        backward(w[Wte{}], g[Wte{}], rank);
        layer.reshard(std::move(w));
        accumulation.add(std::move(g));
        optimizer.step(std::move(accumulation));
    }
}

int main() {
    std::vector<float> adopted;
    std::vector<float> sharded(all_numel);
    bool in_place = true;
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        std::vector<float> parameters = load_checkpoint();
        std::vector<float> gradients(all_numel);
        auto replicated = sk::Sharded<Model, sk::NoShard>::adopt(rank, "model", {}, {parameters, gradients});
        train(replicated, rank.rank());

        const std::vector<float> loaded = load_checkpoint();
        const std::span<const float> full(loaded);
        auto split = sk::Sharded<Model, sk::FullShard>::from_full(rank, "model", {}, {.packing = sk::Packing::packed},
                                                                  sk::full_values<Wte>(full.first(wte_numel)),
                                                                  sk::full_values<Bias>(full.subspan(wte_numel)));
        train(split, rank.rank());
        split.read_full_on(0, Wte{}, std::span(sharded).first(rank.rank() == 0 ? wte_numel : 0));
        split.read_full_on(0, Bias{}, std::span(sharded).subspan(wte_numel, rank.rank() == 0 ? channels : 0));

        if (rank.rank() == 0) {
            const auto window = replicated.unshard();
            in_place = window[Wte{}].data() == parameters.data();
            adopted = parameters;  // the trainer's own memory holds the trained values
        }
    });
    const bool equal = std::equal(
        adopted.begin(), adopted.end(), sharded.begin(), sharded.end(),
        [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); });
    std::printf("adopted: windows show the trainer's own memory: %s\n", in_place ? "yes" : "NO");
    std::printf("ten steps on three ranks, adopted in place and fully sharded, bitwise equal: %s\n",
                equal ? "yes" : "NO");
    return in_place && equal ? EXIT_SUCCESS : EXIT_FAILURE;
}
