// SPDX-License-Identifier: Apache-2.0
// Makes each mistake of docs/troubleshooting.md on two ranks, and prints the error.
#include <cstdio>
#include <exception>
#include <shardkit/local_shards.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>
#include <string>
#include <vector>
namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 64> {};
using Layers = std::vector<sk::Sharded<Weight, sk::FullShard>>;

// Runs `mistake` on two ranks with a model of three layers, and prints the error that ends it.
template <class F>
void provoke(const char* name, F mistake) {
    std::printf("[%s]\n", name);
    try {
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Layers layers;
            for (int i = 0; i < 3; ++i) { layers.emplace_back(rank, "layers." + std::to_string(i)); }
            sk::Model model{layers};
            mistake(rank, layers, model);
        });
        std::printf("no error\n");
    } catch (const std::exception& error) { std::printf("%s\n", error.what()); }
}
void backward(Layers& layers, auto& accumulation) {
    for (auto& layer : layers) { accumulation.add(accumulation.gradients(layer)); }
}

int main() {
    provoke("windows", [](auto&, auto& layers, auto&) {
        const auto a = layers[0].unshard(), b = layers[1].unshard(), c = layers[2].unshard();
    });
    provoke("open", [](auto&, auto& layers, auto& model) {
        sk::SGD optimizer{model, {}};
        sk::Accumulation accumulation{model};
        backward(layers, accumulation);
        const auto window = layers[0].unshard();
        optimizer.step(std::move(accumulation));
    });
    provoke("forgotten", [](auto&, auto& layers, auto& model) {
        sk::Accumulation accumulation{model};
        accumulation.add(accumulation.gradients(layers[0]));
        accumulation.add(accumulation.gradients(layers[1]));
        (void)sk::reduce(std::move(accumulation), sk::mean);
    });
    provoke("dropped", [](auto&, auto& layers, auto& model) {
        sk::Accumulation accumulation{model};
        (void)accumulation.gradients(layers[0]);
        backward(layers, accumulation);
        (void)sk::reduce(std::move(accumulation), sk::mean);
    });
    provoke("twice", [](auto&, auto& layers, auto& model) {
        sk::Accumulation accumulation{model};
        backward(layers, accumulation);
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        (void)sk::reduce(std::move(accumulation), sk::mean);
    });
    provoke("more", [](auto&, auto& layers, auto& model) {
        sk::Accumulation accumulation{model};
        backward(layers, accumulation);
        backward(layers, accumulation);
    });
    provoke("fewer", [](auto&, auto& layers, auto& model) {
        sk::AdamW optimizer{model};
        sk::Accumulation accumulation{model, 2};
        backward(layers, accumulation);
        optimizer.step(std::move(accumulation));
    });
    provoke("order", [](auto& rank, auto& layers, auto&) { const auto window = layers[rank.rank()].unshard(); });
    provoke("divisor", [](auto& rank, auto& layers, auto& model) {
        sk::Accumulation accumulation{model};
        backward(layers, accumulation);
        (void)sk::global_norm(sk::reduce(std::move(accumulation), sk::divide_by(rank.rank() + 1)));
    });
    provoke("rate", [](auto& rank, auto& layers, auto& model) {
        sk::AdamW optimizer{model, {.learning_rate = 0.001 * (rank.rank() + 1)}};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            backward(layers, accumulation);
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));  // without a norm
        }
    });
    provoke("replicas", [](auto& rank, auto&, auto&) {
        sk::Sharded<Weight, sk::NoShard> whole{rank, "whole"};
        whole.load(Weight{}, std::vector<float>(64, 1 + rank.rank()));
        sk::Model model{whole};
        sk::Accumulation accumulation{model};
        accumulation.add_zero(whole);
    });
    provoke("updates", [](auto& rank, auto& layers, auto& model) {
        sk::SGD optimizer{model, {}};
        if (rank.rank() == 0) { optimizer.step(sk::assume_reduced(model)); }
        const auto window = layers[0].unshard();
    });
    provoke("adopted", [](auto& rank, auto&, auto&) {
        std::vector<float> memory(64);
        using Whole = sk::Sharded<Weight, sk::NoShard>;
        const auto a = Whole::adopt(rank, "a", {}, {memory, {}});
        const auto b = Whole::adopt(rank, "b", {}, {memory, {}});
    });
    provoke("assumed", [](auto& rank, auto&, auto&) {
        sk::Sharded<Weight, sk::NoShard> whole{rank, "whole"};
        sk::gradient_shard(whole)[0] = static_cast<float>(rank.rank());
        sk::Model model{whole};
        (void)sk::global_norm(sk::assume_reduced(model));
    });
    provoke("half", [](auto&, auto& layers, auto& model) {
        try {
            layers[0].initialize([](auto, auto, auto) -> double { throw std::runtime_error("no such file"); });
        } catch (const std::runtime_error&) {}
        sk::Accumulation accumulation{model};
    });
    provoke("one rank", [](auto& rank, auto& layers, auto&) {
        if (rank.rank() == 0) { const auto window = layers[0].unshard(); }
    });
    provoke("schedule", [](auto&, auto& layers, auto& model) {
        sk::SGD optimizer{model, {}};
        const auto step = [&](int microbatches) {
            sk::Accumulation accumulation{model, microbatches};
            for (int i = 0; i < microbatches; ++i) { backward(layers, accumulation); }
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        };
        const auto following = sk::schedule::follow(model, sk::schedule::record(model, [&] { step(1); }));
        step(2);
    });
    provoke("described", [](auto&, auto& layers, auto& model) {
        const sk::Schedule step = sk::schedule::layered_step(sk::describe_groups(model));
        sk::Model part{layers[0], layers[1]};
        (void)sk::schedule::keep_gathered(step, sk::describe_groups(part), sk::ByteCount(1 << 20));
    });
    provoke("throws", [](auto& rank, auto& layers, auto&) {
        if (rank.rank() == 1) { throw std::runtime_error("out of data"); }
        const auto window = layers[0].unshard();
    });
    provoke("ended", [](auto&, auto& layers, auto&) {
        auto window = layers[0].unshard();
        layers[0].reshard(std::move(window));
        (void)window[Weight{}];
    });
    provoke("moved", [](auto&, auto& layers, auto&) {
        auto other = std::move(layers[0]);
        (void)layers[0].unshard();
    });
    provoke("norm", [](auto& rank, auto& layers, auto& model) {
        sk::SGD optimizer{model, {}};
        sk::LossScale scale{rank};
        sk::Accumulation accumulation{model};
        backward(layers, accumulation);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean, scale), sk::ClipCoefficient{});
    });
    provoke("path", [](auto& rank, auto&, auto&) {
        Layers two;
        two.emplace_back(rank, "layer");
        two.emplace_back(rank, "layer");
        sk::Model model{two};
        sk::SGD optimizer{model, {}};
    });
    provoke("size", [](auto&, auto& layers, auto&) { layers[0].load(Weight{}, std::vector<float>(63)); });
    provoke("hybrid", [](auto& rank, auto&, auto&) {
        using Policy = sk::HybridShard<sk::dynamic>;
        sk::Sharded<Weight, Policy> layer{rank, "layer", {}, {Policy{3}}};
    });
}
