// SPDX-License-Identifier: Apache-2.0
// reshard RANKS ELEMENTS: brings matrices that threads share out by rows to other shares of the same threads, as its
// input says:
//     reshard whole|columns    {"seconds": from the first rank's begin to the last one's end}
//     check whole|columns      {"wrong": elements that are not the source's}
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/split.hpp>

#include "../common/measure.hpp"
#include "console.hpp"

namespace {

using namespace benchmarks;
using namespace benchmarks::peers;
namespace sk = shardkit;

constexpr std::size_t matrices = 12;
constexpr std::size_t columns = 840;  // up to eight ranks share them out evenly

struct Matrix : sk::Param<"matrix", float, sk::dynamic, columns>, sk::tp::Split<1> {};
using Layer = sk::Sharded<Matrix, sk::DynamicPolicy>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;

/// Exact in fp32, and other ones in each matrix.
double value_of(std::size_t matrix, std::uint64_t element) {
    return static_cast<double>((element * 7 + matrix * 1000) % 65521);
}

/// The matrices on one mesh, without gradients.
class Matrices {
  public:
    Matrices(sk::Rank& rank, const sk::DynamicPolicy& policy, std::size_t rows) {
        layers_.reserve(matrices);
        for (std::size_t m = 0; m < matrices; ++m) {
            layers_.emplace_back(rank, "matrices." + std::to_string(m),
                                 sk::Shapes<sk::Params<Matrix>>{sk::shape<Matrix>(rows, columns)},
                                 Layer::Options{.policy = policy, .frozen = Layer::Group::all()});
        }
    }
    void begin() {
        for (std::size_t m = 0; m < matrices; ++m) {
            layers_[m].initialize([m](auto, auto, std::uint64_t i) { return value_of(m, i); });
        }
    }
    std::uint64_t wrong() {
        std::uint64_t all = 0;
        for (std::size_t m = 0; m < matrices; ++m) {
            const auto& parameter = layers_[m].parameters()[0];
            const auto window = layers_[m].unshard();
            const auto view = window.view(0);
            parameter.part.for_each_run(0, view.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
                for (std::size_t k = 0; k < run; ++k) {
                    all += view.data()[i + k] == static_cast<float>(value_of(m, at + k)) ? 0U : 1U;
                }
            });
        }
        return all;
    }
    auto model() { return sk::Model{layers_}; }

  private:
    std::vector<Layer> layers_;
};

/// Where matrices are brought to, and the plan for it.
struct Destination {
    Destination(sk::Rank& source, const sk::ReshardSide& from, const Mesh& mesh, std::size_t rows)
        : rank(mesh, sk::split(source.world(), 0, source.rank(), "destination")),
          held(rank, sk::DynamicPolicy(sk::NoShard{}), rows),
          plan(sk::plan_reshard(source, from, held.model())) {}

    sk::MeshRank<Mesh> rank;
    Matrices held;
    sk::ReshardPlan plan;
};

/// One rank's part. Collective over the world.
void serve(sk::Rank& rank, Command& command, std::size_t rows) {
    const std::size_t ranks = rank.world_size();
    Matrices source(rank, sk::DynamicPolicy(sk::FullShard{}), rows);
    source.begin();
    const sk::ReshardSide from(source.model());
    Destination whole(rank, from, Mesh(ranks, 1), rows);
    Destination in_columns(rank, from, Mesh(1, ranks), rows);
    if (rank.rank() == 0) {
        answer(facts({{"ranks", ranks},
                      {"bytes", matrices * rows * columns * sizeof(float)},
                      {"received_whole", whole.plan.received()},
                      {"received_columns", in_columns.plan.received()},
                      {"pinned", false}}));
    }
    for (;;) {
        meet(rank);
        if (rank.rank() == 0) { command = words_of(read_line()); }
        meet(rank);
        if (command.empty() || command.front() == "quit") { return; }
        const std::string& form = word_at(command, 1);
        if ((command.front() != "reshard" && command.front() != "check") || (form != "whole" && form != "columns")) {
            throw std::invalid_argument("command '" + command.front() + " " + form +
                                        "': expected reshard or check of whole or columns, or quit");
        }
        Destination& to = form == "whole" ? whole : in_columns;
        const auto move = [&] { sk::reshard(rank, to.plan, from, to.held.model()); };
        if (command.front() == "reshard") {
            const auto seconds = world_seconds_of(rank, move);
            if (rank.rank() == 0) { answer({{"seconds", seconds}}); }
        } else {
            move();
            const double wrong = sk::all_reduce_value(rank, static_cast<double>(to.held.wrong()));
            if (rank.rank() == 0) { answer({{"wrong", static_cast<std::uint64_t>(wrong)}}); }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("reshard", argc, argv, [](const Command& words) {
        const std::size_t ranks = number_at(words, 1);
        // Whole rows and columns for each rank, as a mesh of them has.
        const std::size_t rows = (number_at(words, 2) / matrices / columns / ranks + 1) * ranks;
        Command command;
        sk::threads::run(sk::DeviceMesh(ranks), [&](sk::Rank& rank) { serve(rank, command, rows); });
    });
}
