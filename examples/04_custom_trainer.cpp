// SPDX-License-Identifier: Apache-2.0
// A trainer of one's own: forward, backward and loss are plain loops over memory, the library shards, reduces and
// updates. A small network learns y = sin(3 x0) x1 on two ranks.
// g++ -std=c++20 -Iinclude examples/04_custom_trainer.cpp -pthread -o example && ./example
#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace sk = shardkit;

constexpr std::size_t inputs = 2;
constexpr std::size_t hidden = 32;
constexpr std::size_t batch = 32;  // per rank
constexpr int steps = 400;

struct W1 : sk::Param<"w1", float, hidden, inputs> {};
struct B1 : sk::Param<"b1", float, hidden> {};
struct W2 : sk::Param<"w2", float, hidden> {};
using Network = sk::Params<W1, B1, W2>;

// Takes plain memory: nothing here knows of shards or ranks. Adds to the gradients, returns the loss.
float forward_backward(const float* w1, const float* b1, const float* w2, float* dw1, float* db1, float* dw2,
                       std::size_t first_sample) {
    float loss = 0;
    for (std::size_t s = 0; s < batch; ++s) {
        const auto n = static_cast<float>(first_sample + s);
        const std::array<float, inputs> x{std::sin(1.7F * n), std::cos(2.3F * n)};
        std::array<float, hidden> h{};
        float y = 0;
        for (std::size_t j = 0; j < hidden; ++j) {
            h[j] = std::tanh(w1[j * inputs] * x[0] + w1[j * inputs + 1] * x[1] + b1[j]);
            y += w2[j] * h[j];
        }
        const float error = y - std::sin(3 * x[0]) * x[1];
        loss += error * error / static_cast<float>(batch);
        const float dy = 2 * error / static_cast<float>(batch);
        for (std::size_t j = 0; j < hidden; ++j) {
            const float dz = dy * w2[j] * (1 - h[j] * h[j]);
            dw2[j] += dy * h[j];
            db1[j] += dz;
            dw1[j * inputs] += dz * x[0];
            dw1[j * inputs + 1] += dz * x[1];
        }
    }
    return loss;
}

int main() {
    float first = 0;
    float last = 0;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        sk::Sharded<Network, sk::FullShard> network{rank, "network"};
        network.initialize([](auto, auto parameter, std::uint64_t i) {
            return parameter == "b1" ? 0.0 : std::sin(7.0 * static_cast<double>(i) + (parameter == "w2" ? 1 : 0));
        });
        sk::Model model{network};
        // No weight decay for biases.
        sk::AdamW optimizer{model,
                            {.learning_rate = 1e-2},
                            {{.matches = [](auto, auto parameter) { return parameter == "b1"; }, .weight_decay = 0}}};

        for (int step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model};
            auto w = network.unshard();
            auto g = accumulation.gradients(network);
            const std::size_t sample = (static_cast<std::size_t>(step) * 2 + rank.rank()) * batch;
            std::array<float, 1> loss{forward_backward(w[W1{}], w[B1{}], w[W2{}], g[W1{}], g[B1{}], g[W2{}], sample)};
            network.reshard(std::move(w));
            accumulation.add(std::move(g));

            const auto norm = optimizer.step(std::move(accumulation), {.max_norm = 1.0});

            // The loss is the user's own: so is its reduction.
            sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, std::span<float>(loss), rank.compute_stream());
            if (rank.rank() == 0) {
                last = loss[0] / 2;
                if (step == 0) { first = last; }
                if (step % 80 == 0 || step + 1 == steps) {
                    std::printf("step %3d  loss %.5f  gradient norm %.4f\n", step, static_cast<double>(last),
                                norm.value());
                }
            }
        }
    });
    const bool learned = last < 0.1F * first;
    std::printf("loss fell by more than a factor of ten: %s\n", learned ? "yes" : "NO");
    return learned ? EXIT_SUCCESS : EXIT_FAILURE;
}
