// SPDX-License-Identifier: Apache-2.0
// adamw: steps the library's AdamW on one rank and one processor, as its input says:
//     prepare ELEMENTS     parameters and gradients that the peer makes by the same formula
//     go STEPS             {"seconds": ...}
//     dump FILE            the parameters as they are, fp32 in the machine's order
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/sharded/groups.hpp>
#include <shardkit/sharded/reduce.hpp>

#include "../common/machine.hpp"
#include "../common/pin.hpp"
#include "console.hpp"

namespace {

using namespace benchmarks;
namespace sk = shardkit;

using Engine = sk::self::Engine;
struct Values : sk::Param<"values", float, sk::dynamic> {};
using Layer = sk::Sharded<Values, sk::NoShard, Engine>;
using Model = decltype(sk::groups(std::declval<Layer&>()));
using Optimizer = decltype(sk::AdamW{std::declval<Model&>(), sk::AdamWOptions{}});

/// In [-0.5, 0.5), exact in fp64 and so the same wherever it is computed.
double value(std::uint64_t i, std::uint64_t factor) {
    return static_cast<double>((i * factor + 1) & 0xffffffffU) * 0x1p-32 - 0.5;
}

/// A parameter of n elements, whose gradient stays what it is.
class Run {
  public:
    Run(sk::Context<Engine>& context, std::size_t n)
        : layer_(context, "layer", {sk::shape<Values>(n)}), model_(sk::groups(layer_)), optimizer_(model_, {}) {
        layer_.initialize([](std::string_view, std::string_view, std::uint64_t i) { return value(i, 2654435761U); });
        const std::span<float> gradient = sk::gradient_shard(layer_);
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] = i < n ? static_cast<float>(0.01 * value(i, 2246822519U)) : 0.0F;
        }
    }
    void step() { optimizer_.step(sk::assume_reduced(model_)); }
    void dump(const std::string& name) {
        std::vector<float> values(layer_.shapes()[0].numel());
        layer_.read_full(Values{}, std::span<float>(values));
        std::ofstream file(name, std::ios::binary);
        file.write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(float)));
        if (!file.flush()) { throw std::runtime_error("cannot write '" + name + "'"); }
    }

  private:
    Layer layer_;
    Model model_;
    Optimizer optimizer_;
};

void serve(sk::Context<Engine>& context) {
    pin_to(allowed_processors(), 0);
    const Machine machine = Machine::read();
    peers::answer({{"compiler", machine.compiler}, {"flags", machine.flags}, {"threads", 1}, {"pinned", true}});
    std::unique_ptr<Run> run;
    const auto next = [] { return peers::words_of(peers::read_line()); };
    for (peers::Command command = next(); !command.empty() && command.front() != "quit"; command = next()) {
        if (command.front() == "prepare") {
            run.reset();
            run = std::make_unique<Run>(context, peers::number_at(command, 1));
            peers::answer(nlohmann::json::object());
        } else if (run && command.front() == "go") {
            const std::size_t steps = peers::number_at(command, 1);
            const auto begin = std::chrono::steady_clock::now();
            for (std::size_t i = 0; i < steps; ++i) { run->step(); }
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            peers::answer({{"seconds", took.count()}});
        } else if (run && command.front() == "dump") {
            run->dump(peers::word_at(command, 1));
            peers::answer(nlohmann::json::object());
        } else {
            throw std::invalid_argument("command '" + command.front() + "': expected prepare, then go, dump or quit");
        }
    }
}

}  // namespace

int main() {
    try {
        sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) { serve(rank); });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "adamw: error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
