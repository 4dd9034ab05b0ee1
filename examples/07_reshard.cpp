// SPDX-License-Identifier: Apache-2.0
// Four ranks train and two others evaluate: the weights go from one mesh to the other without a file.
// g++ -std=c++20 -Iinclude examples/07_reshard.cpp -pthread -o example && ./example
#include <shardkit/reshard.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 64, 32>, sk::tp::Split<0> {};
struct Bias : sk::Param<"bias", float, 64> {};
using Linear = sk::Params<Weight, Bias>;

constexpr std::size_t trainers = 4;

// The squared distance of this rank's weights to what they are trained to.
template <class Layer>
double distance(Layer& layer) {
    double sum = 0;
    const auto window = layer.unshard();
    for (const float w : window[Weight{}]) { sum += (w - 0.5) * (w - 0.5); }
    return sum;
}

// Half of the ranks' mesh is dp = 4 with sharded weights and an optimizer.
struct Trainer {
    sk::Sharded<Linear, sk::FullShard> layer;
    sk::Model model;
    sk::AdamW optimizer;

    explicit Trainer(sk::Rank& rank)
        : layer(rank, "linear"), model(layer), optimizer(model, {.learning_rate = 0.05}) {
        model.initialize([](auto, auto, std::uint64_t i) { return std::sin(static_cast<double>(i)); });
    }
    void step() {
        sk::Accumulation accumulation{model};
        auto window = layer.unshard();
        auto gradients = accumulation.gradients(layer);
        const auto weight = window[Weight{}];
        for (std::size_t i = 0; i < weight.size(); ++i) { gradients[Weight{}][i] = weight[i] - 0.5F; }
        layer.reshard(std::move(window));
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
    }
};

int main() {
    sk::threads::run(sk::DeviceMesh<6>{}, [](auto& rank) {
        // Each part of the ranks is the world of a mesh of its own.
        const bool trains = rank.rank() < trainers;
        const auto part = sk::split(rank.world(), trains ? 0 : 1, rank.rank(), trains ? "trainers" : "evaluators");
        std::optional<sk::MeshRank<sk::DeviceMesh<4>>> dp;
        std::optional<sk::MeshRank<sk::DeviceMesh<1, 2>>> tp;
        std::optional<Trainer> trainer;
        std::optional<sk::Sharded<Linear, sk::NoShard>> evaluated;  // whole on each rank, but for tp
        if (trains) {
            trainer.emplace(dp.emplace(sk::DeviceMesh<4>{}, part));
        } else {
            evaluated.emplace(tp.emplace(sk::DeviceMesh<1, 2>{}, part), "linear");
        }
        using Side = sk::ReshardSide;
        const Side from = trains ? Side(trainer->model) : nullptr;
        const Side to = trains ? Side(nullptr) : Side(sk::Model{*evaluated});

        const sk::ReshardPlan plan = sk::plan_reshard(rank, from, to);
        if (rank.rank() == 0) { std::printf("%s", plan.describe().c_str()); }
        for (int round = 0; round < 3; ++round) {
            for (int s = 0; s < 10 && trains; ++s) { trainer->step(); }
            sk::reshard(rank, plan, from, to);
            // The evaluators add up their halves, and tell the trainers, who look at their own weights.
            const double part_of_it = evaluated ? distance(*evaluated) : 0;
            const double told = sk::all_reduce_value(rank, part_of_it);
            const double own = trainer ? distance(trainer->layer) : told;
            if (std::abs(own - told) > 1e-9 * own) { std::exit(1); }
            if (rank.rank() == 0) { std::printf("after %d steps: %.6f\n", 10 * (round + 1), told); }
        }
    });
}
