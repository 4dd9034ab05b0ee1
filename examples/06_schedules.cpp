// SPDX-License-Identifier: Apache-2.0
// A training step as a value: recorded, checked, improved, simulated, and followed by the same trainer.
// g++ -std=c++20 -Iinclude examples/06_schedules.cpp -pthread -o example && ./example
#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 64, 64> {};
using Layer = sk::Sharded<Weight, sk::FullShard>;

std::vector<Layer> make_layers(sk::Rank& rank) {
    std::vector<Layer> layers;
    for (int i = 0; i < 3; ++i) { layers.emplace_back(rank, "layers." + std::to_string(i)); }
    return layers;
}

// The trainer knows nothing of schedules: it opens windows where it needs them.
struct Trainer {
    std::vector<Layer> layers;
    sk::Model model;
    sk::AdamW optimizer;

    explicit Trainer(sk::Rank& rank)
        : layers(make_layers(rank)), model(layers), optimizer(model, {.learning_rate = 0.05}) {
        model.initialize([](auto, auto, std::uint64_t k) { return std::sin(static_cast<double>(k)); });
    }

    void step(float target) {
        sk::Accumulation accumulation{model};
        for (Layer& layer : layers) { const auto window = layer.unshard(); /* forward */ }
        for (std::size_t l = layers.size(); l > 0; --l) {
            auto window = layers[l - 1].unshard();
            auto gradients = accumulation.gradients(layers[l - 1]);
            for (std::size_t i = 0; i < 64 * 64; ++i) { gradients[Weight{}][i] += window[Weight{}][i] - target; }
            layers[l - 1].reshard(std::move(window));
            accumulation.add(std::move(gradients));
        }
        optimizer.step(std::move(accumulation), {.max_norm = 10.0});
    }
};

// The weights of the last layer after four steps, with a schedule and without.
std::vector<float> train(bool scheduled) {
    std::vector<float> weights(64 * 64);
    sk::threads::run(sk::DeviceMesh<4>{}, [&](auto& rank) {
        Trainer trainer(rank);
        const auto step = [&] { trainer.step(0.25F * static_cast<float>(rank.rank())); };
        if (!scheduled) {
            for (int i = 0; i < 4; ++i) { step(); }
        } else {
            const auto groups = sk::describe_groups(trainer.model);
            const sk::Schedule recorded = sk::schedule::record(trainer.model, step);
            const sk::Schedule better = sk::schedule::prefetch(
                sk::schedule::keep_gathered(recorded, groups,
                                            sk::schedule::peak(recorded, groups) + sk::ByteCount(64 * 64 * 4)),
                groups);
            if (rank.rank() == 0) {
                // A gather or a reduction takes 0.3 ms here, a forward pass 0.4 ms and a backward pass 0.8 ms.
                const std::vector<sk::schedule::GroupSeconds> seconds(3, {0.4e-3, 0.8e-3, 0});
                const sk::schedule::StepCosts costs{seconds,
                                                    {sk::planner::TimeModel::links({0, 3 * 64 * 64 / 0.3e-3})}};
                const auto time = [&](const sk::Schedule& s) {
                    return sk::schedule::simulate(s, groups, rank.grid(), costs);
                };
                std::printf("as recorded:\n%s", sk::schedule::table(recorded, groups).c_str());
                std::printf("better:\n%s", sk::schedule::table(better, groups).c_str());
                std::printf("exposed communication: %.1f ms as recorded, %.1f ms better\n",
                            time(recorded).exposed() * 1e3, time(better).exposed() * 1e3);
            }
            const auto following = sk::schedule::follow(trainer.model, better);  // the one line
            for (int i = 1; i < 4; ++i) { step(); }
        }
        trainer.layers.back().read_full_on(0, Weight{}, std::span(weights).first(rank.rank() == 0 ? 64 * 64 : 0));
    });
    return weights;
}

int main() {
    const bool same = train(true) == train(false);
    std::printf("weights after four steps, with the schedule and without: %s\n",
                same ? "the same bits" : "DIFFERENT");
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
