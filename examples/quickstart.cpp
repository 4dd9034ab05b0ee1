// SPDX-License-Identifier: Apache-2.0
// The program of docs/cuda_quickstart.md on threads in one process, with plain loops in place of kernels.
// g++ -std=c++20 -Iinclude examples/quickstart.cpp -pthread -o example && ./example
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <shardkit/shardkit.hpp>
#include <string>
#include <vector>
namespace sk = shardkit;

constexpr std::size_t width = 64, batch = 8, layers = 4, microbatches = 2;

// The code base's own: y = x + W tanh(x) and its backward pass, on plain pointers. Backward adds to dw.
void forward(const float* w, const float* x, float* y) {
    for (std::size_t b = 0; b < batch; ++b) {
        for (std::size_t o = 0; o < width; ++o) {
            float sum = x[b * width + o];
            for (std::size_t i = 0; i < width; ++i) { sum += w[o * width + i] * std::tanh(x[b * width + i]); }
            y[b * width + o] = sum;
        }
    }
}
void backward(const float* w, const float* x, const float* dy, float* dw, float* dx) {
    for (std::size_t b = 0; b < batch; ++b) {
        for (std::size_t i = 0; i < width; ++i) {
            const float t = std::tanh(x[b * width + i]);
            float sum = 0;
            for (std::size_t o = 0; o < width; ++o) {
                dw[o * width + i] += dy[b * width + o] * t;
                sum += dy[b * width + o] * w[o * width + i];
            }
            dx[b * width + i] = dy[b * width + i] + sum * (1 - t * t);
        }
    }
}

struct Weight : sk::Param<"weight", float, width, width> {};

int main() {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {  // two ranks in this process
        using Layer = sk::Sharded<Weight, sk::FullShard>;
        std::vector<Layer> model_layers;
        for (std::size_t l = 0; l < layers; ++l) {
            model_layers.emplace_back(rank, "layers." + std::to_string(l));
            model_layers[l].initialize(
                [&](auto, auto, std::uint64_t i) {  // by the element's number: equal on any mesh
                    return 0.1 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(l));
                });
        }
        sk::Model model{model_layers};
        sk::AdamW optimizer{model, {.learning_rate = 1e-2}};
        std::vector<std::vector<float>> x(layers + 1, std::vector<float>(batch * width));
        std::vector<float> dx(batch * width), dy(batch * width);

        for (int step = 0; step < 20; ++step) {
            double loss = 0;
            sk::Accumulation accumulation{model, microbatches};
            for (std::size_t m = 0; m < microbatches; ++m) {
                for (std::size_t i = 0; i < batch * width; ++i) {  // this rank's samples of this microbatch
                    x[0][i] = std::cos(static_cast<float>(i + 31 * (m + microbatches * rank.rank())));
                }
                auto next = model_layers[0].begin_unshard();
                for (std::size_t l = 0; l < layers; ++l) {
                    const auto w = std::move(next).wait();
                    if (l + 1 < layers) { next = model_layers[l + 1].begin_unshard(); }  // beside this layer's work
                    forward(w[Weight{}], x[l].data(), x[l + 1].data());
                }                                                  // the window ends: the full weight is given back
                for (std::size_t i = 0; i < batch * width; ++i) {  // the loss: half of the mean square of the output
                    loss += 0.5 * x[layers][i] * x[layers][i] / (batch * width * microbatches);
                    dy[i] = x[layers][i] / (batch * width * microbatches);
                }
                for (std::size_t l = layers; l-- > 0;) {
                    const auto w = model_layers[l].unshard();
                    auto g = accumulation.gradients(model_layers[l]);
                    backward(w[Weight{}], x[l].data(), dy.data(), g[Weight{}].data(), dx.data());
                    accumulation.add(std::move(g));
                    std::swap(dx, dy);
                }
            }
            optimizer.step(std::move(accumulation), {.max_norm = 1.0});

            const double sum = sk::all_reduce_value(rank, loss);
            if (rank.rank() == 0 && step % 10 == 9) { std::printf("step %2d  loss %.4f\n", step, sum / 2); }
        }
    });
}
