// SPDX-License-Identifier: Apache-2.0
// muon RANKS: steps the library's Muon for the matrices of a GPT under FullShard, a rank on each of so many threads,
// as its input says:
//     prepare LAYERS WIDTH  matrices and gradients that all sides make by the same formula
//     go STEPS              {"seconds": of the optimizer's steps alone, "received": bytes of a rank in one, on
//     average} dump FILE             the matrices as they are, fp32 in the machine's order
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <shardkit/backend/cblas/cblas_products.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/matrix_optimizer.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>

#include "../../examples/common/openblas.hpp"
#include "../common/pin.hpp"
#include "serve_adamw.hpp"

namespace {

using namespace benchmarks::peers;
namespace sk = shardkit;

/// Of element i, in [-0.5, 0.5); the workers in Python have the same.
float value_of(std::uint64_t i, std::uint64_t factor) {
    return static_cast<float>(static_cast<double>((i * factor + 1) & 0xFFFFFFFFU) * 0x1p-32 - 0.5);
}

/// One rank's matrices and their optimizer.
class Run {
  public:
    using List = sk::TensorList<float>;

    Run(sk::Rank& rank, std::size_t layers, std::size_t width)
        : rank_(rank), layers_(made(rank, layers, width)), model_(layers_) {
        const std::array sizes{3 * width * width, width * width, 4 * width * width, 4 * width * width};
        sizes_.assign(sizes.begin(), sizes.end());
        model_.initialize([](auto, auto, auto i) { return double{value_of(i, 2654435761U)} / 16; });
        optimizer_ = std::make_unique<sk::rules::MatrixOptimizer<sk::rules::MuonRule>>(
            model_, sk::CblasProducts{}, sk::MuonOptions{.learning_rate = 0.02, .weight_decay = 0.01});
    }
    /// Returns the seconds of the optimizer's part of a step.
    double step() {
        sk::Accumulation accumulation{model_};
        for (auto& layer : layers_) {
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < names.size(); ++p) {
                float* const gradient = gradients.view(names[p]).data();
                for (std::size_t i = 0; i < sizes_[p]; ++i) { gradient[i] = value_of(i, 2246822519U); }
            }
            accumulation.add(std::move(gradients));
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        sk::barrier(rank_.world());
        rank_.traffic().clear();
        const auto begin = std::chrono::steady_clock::now();
        optimizer_->step(std::move(reduced));
        rank_.synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    std::uint64_t received() const { return rank_.traffic().total(sk::Verb::all_to_all_uneven).moved.value; }
    std::vector<float> parameters() {
        std::vector<float> all;
        for (auto& layer : layers_) {
            for (std::size_t p = 0; p < names.size(); ++p) {
                std::vector<float> whole(sizes_[p]);
                layer.read_full(names[p], whole);
                all.insert(all.end(), whole.begin(), whole.end());
            }
        }
        return all;
    }

  private:
    using Layer = sk::Sharded<List, sk::FullShard>;
    static constexpr std::array names{"qkv", "projection", "up", "down"};

    static std::vector<Layer> made(sk::Rank& rank, std::size_t layers, std::size_t width) {
        std::vector<Layer> all;
        for (std::size_t l = 0; l < layers; ++l) {
            all.emplace_back(rank, "blocks." + std::to_string(l),
                             List{{names[0], {3 * width, width}},
                                  {names[1], {width, width}},
                                  {names[2], {4 * width, width}},
                                  {names[3], {width, 4 * width}}});
        }
        return all;
    }

    sk::Rank& rank_;
    std::vector<Layer> layers_;
    sk::Model model_;
    std::vector<std::size_t> sizes_;
    std::unique_ptr<sk::rules::MatrixOptimizer<sk::rules::MuonRule>> optimizer_;
};

/// Every rank does what rank 0 reads.
void serve(std::size_t ranks) {
    const program::Blas& blas = program::blas();  // before the first product
    std::barrier together(static_cast<std::ptrdiff_t>(ranks));
    Command command;
    sk::threads::run(sk::DeviceMesh(ranks), [&](sk::Rank& rank) {
        benchmarks::pin_to(benchmarks::allowed_processors(), rank.rank());
        const bool speaks = rank.rank() == 0;
        if (speaks) {
            answer(facts({{"ranks", ranks},
                          {"threads", 1},
                          {"pinned", true},
                          {"policy", "full_shard"},
                          {"blas", blas.library + ", kernel " + blas.kernel}}));
        }
        std::unique_ptr<Run> run;
        while (true) {
            if (speaks) { command = words_of(read_line()); }
            together.arrive_and_wait();
            const Command now = command;
            together.arrive_and_wait();
            if (now.empty() || now.front() == "quit") { return; }
            nlohmann::json reply = nlohmann::json::object();
            if (now.front() == "prepare") {
                run = std::make_unique<Run>(rank, number_at(now, 1), number_at(now, 2));
            } else if (run && now.front() == "go") {
                double seconds = 0;
                for (std::size_t i = number_at(now, 1); i > 0; --i) { seconds += run->step(); }
                reply = {{"seconds", seconds}, {"received", run->received()}};
            } else if (run && now.front() == "dump") {
                const std::vector<float> values = run->parameters();
                if (speaks) { ParametersFile{word_at(now, 1)}.write(values); }
            } else {
                throw std::invalid_argument("command '" + now.front() + "': expected prepare, then go, dump or quit");
            }
            together.arrive_and_wait();
            if (speaks) { answer(reply); }
        }
    });
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("muon", argc, argv, [](const Command& words) { serve(number_at(words, 1)); });
}
