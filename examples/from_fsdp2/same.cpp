// SPDX-License-Identifier: Apache-2.0
// The program of fsdp2.py beside it, with the work of modules and autograd written out. It prints the same losses and
// norms, to all ten digits.
// g++ -std=c++20 -Iinclude examples/from_fsdp2/same.cpp -pthread -o example && ./example
#include <cmath>
#include <cstdio>
#include <shardkit/shardkit.hpp>
#include <string>
#include <vector>
namespace sk = shardkit;

constexpr std::size_t width = 32, layers = 3, batch = 4, steps = 5, microbatches = 2, numel = batch * width;

struct UpWeight : sk::Param<"up.weight", double, width, width> {};
struct UpBias : sk::Param<"up.bias", double, width> {};
struct DownWeight : sk::Param<"down.weight", double, width, width> {};
using Block = sk::Params<UpWeight, UpBias, DownWeight>;  // what fully_shard(block) makes one group of

// What autograd does there: y += W x, and its backward pass. Gradients are added.
void linear(const double* w, const double* x, double* y) {
    for (std::size_t b = 0; b < batch; ++b) {
        for (std::size_t o = 0; o < width; ++o) {
            for (std::size_t i = 0; i < width; ++i) { y[b * width + o] += w[o * width + i] * x[b * width + i]; }
        }
    }
}
void linear_backward(const double* w, const double* x, const double* dy, double* dw, double* dx) {
    for (std::size_t b = 0; b < batch; ++b) {
        for (std::size_t o = 0; o < width; ++o) {
            for (std::size_t i = 0; i < width; ++i) {
                dw[o * width + i] += dy[b * width + o] * x[b * width + i];
                dx[b * width + i] += dy[b * width + o] * w[o * width + i];
            }
        }
    }
}

int main() {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {  // torchrun --nproc-per-node 2
        std::vector<sk::Sharded<Block, sk::FullShard>> blocks;
        for (std::size_t l = 0; l < layers; ++l) {
            blocks.emplace_back(rank, std::to_string(l));
            blocks[l].initialize([&](auto, auto, std::uint64_t i) {
                return 0.2 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(l));
            });
        }
        sk::Model model{blocks};
        sk::AdamW optimizer{model, {.learning_rate = 1e-2, .weight_decay = 0.1}};
        std::vector<std::vector<double>> x(layers + 1), h(layers);  // inputs of blocks, tanh of up

        for (std::size_t step = 0; step < steps; ++step) {
            double total = 0;
            sk::Accumulation accumulation{model, microbatches};
            for (std::size_t m = 0; m < microbatches; ++m) {
                x[0].resize(numel);
                for (std::size_t i = 0; i < numel; ++i) {
                    const std::size_t place = m + microbatches * (rank.rank() + rank.world_size() * step);
                    x[0][i] = std::cos(static_cast<double>(i + 31 * place));
                }
                for (std::size_t l = 0; l < layers; ++l) {
                    const auto w = blocks[l].unshard();  // the pre-forward hook
                    h[l].assign(numel, 0);
                    linear(w[UpWeight{}], x[l].data(), h[l].data());
                    for (std::size_t i = 0; i < numel; ++i) { h[l][i] = std::tanh(h[l][i] + w[UpBias{}][i % width]); }
                    x[l + 1] = x[l];
                    linear(w[DownWeight{}], h[l].data(), x[l + 1].data());
                }  // the window ends: the post-forward hook
                std::vector<double> dy = x[layers];
                for (double& d : dy) {
                    total += d * d / (2 * numel * microbatches);
                    d /= static_cast<double>(numel * microbatches);
                }
                for (std::size_t l = layers; l-- > 0;) {
                    const auto w = blocks[l].unshard();
                    auto g = accumulation.gradients(blocks[l]);
                    std::vector<double> dx = dy, dh(numel, 0);
                    linear_backward(w[DownWeight{}], h[l].data(), dy.data(), g[DownWeight{}].data(), dh.data());
                    for (std::size_t i = 0; i < numel; ++i) {
                        dh[i] *= 1 - h[l][i] * h[l][i];
                        g[UpBias{}][i % width] += dh[i];
                    }
                    linear_backward(w[UpWeight{}], x[l].data(), dh.data(), g[UpWeight{}].data(), dx.data());
                    accumulation.add(std::move(g));
                    dy = dx;
                }
            }
            const auto norm = optimizer.step(std::move(accumulation), {.max_norm = 1.0});  // and zero_grad
            const double loss = sk::all_reduce_value(rank, total) / 2;
            if (rank.rank() == 0) { std::printf("step %zu  loss %.10f  norm %.10f\n", step, loss, norm.value()); }
        }
    });
}
