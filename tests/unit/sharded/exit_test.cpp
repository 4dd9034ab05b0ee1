// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>

#include "exit_status.hpp"
#include "unit/sharded/linear_layer.hpp"

namespace sk = shardkit;

namespace exit_test {

namespace {

/// As a C-like program has it: of static storage, made while main runs, ended by exit.
struct Trainer {
    using Layer = toy::LinearLayer<sk::NoShard, sk::Precision<float>>;

    sk::self::World world;
    sk::Rank rank{sk::DeviceMesh{1}.grid(), sk::Communicator(world), {}};
    std::vector<float> parameters = std::vector<float>(42);
    std::vector<float> gradients = std::vector<float>(42);
    Layer layer = Layer::adopt(rank, "mine", toy::linear_shapes(), {parameters, gradients});
};
std::unique_ptr<Trainer> trainer;

}  // namespace

TEST_CASE("a global trainer whose group has adopted memory is ended by exit() after what it uses of the library") {
    CHECK(exit_status_of([] {
              trainer = std::make_unique<Trainer>();
              std::exit(7);
          }) == 7);
}

}  // namespace exit_test
