// SPDX-License-Identifier: Apache-2.0
// The same with the library: each rank holds its shard of the parameters, gradients and states.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <shardkit/shardkit.hpp>

#include "network.hpp"

namespace sk = shardkit;

namespace {

struct W1 : sk::Param<"w1", float, trainer::hidden, trainer::inputs> {};
struct B1 : sk::Param<"b1", float, trainer::hidden> {};
struct W2 : sk::Param<"w2", float, trainer::hidden> {};
using Network = sk::Params<W1, B1, W2>;

void train(sk::Rank& rank) {
    sk::Sharded<Network, sk::FullShard> network{rank, "network"};
    network.initialize([](auto, auto parameter, std::uint64_t i) {
        return parameter == "b1" ? 0.0 : trainer::initial_value(parameter == "w2", i);
    });
    sk::Model model{network};
    sk::AdamW optimizer{model,
                        {.learning_rate = trainer::learning_rate},
                        {{.matches = [](auto, auto parameter) { return parameter == "b1"; }, .weight_decay = 0}}};
    for (int step = 0; step < trainer::steps; ++step) {
        sk::Accumulation accumulation{model};
        auto w = network.unshard();
        auto g = accumulation.gradients(network);
        const std::size_t sample = (static_cast<std::size_t>(step) * trainer::ranks + rank.rank()) * trainer::batch;
        const float loss = sk::all_reduce_value(
            rank, trainer::forward_backward(w[W1{}], w[B1{}], w[W2{}], g[W1{}], g[B1{}], g[W2{}], sample) /
                      static_cast<float>(trainer::ranks));
        network.reshard(std::move(w));
        accumulation.add(std::move(g));
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        optimizer.step(std::move(reduced), sk::clip(norm, trainer::clip));
        if (rank.rank() == 0 && (step % 80 == 0 || step + 1 == trainer::steps)) {
            std::printf("step %3d  loss %.5f  gradient norm %.4f\n", step, static_cast<double>(loss), norm.value());
        }
    }
}

}  // namespace

int main() {
    sk::threads::run(sk::DeviceMesh<trainer::ranks>{}, [](auto& rank) { train(rank); });
}
