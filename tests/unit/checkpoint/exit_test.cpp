// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/param/params.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "exit_status.hpp"
#include "temporary_folder.hpp"

namespace sk = shardkit;

namespace exit_test {

namespace {

struct Weight : sk::Param<"weight", float, 1000> {};

/// As a C-like program has it: of static storage, ended by exit with a save that nobody has committed.
struct Trainer {
    using Layer = sk::Sharded<sk::Params<Weight>, sk::FullShard>;

    sk::self::World world;
    sk::Rank rank{sk::DeviceMesh{1}.grid(), sk::Communicator(world), {}};
    Layer layer{rank, "layer"};
    std::optional<sk::checkpoint::PendingSave> pending;
};
std::unique_ptr<Trainer> trainer;

}  // namespace

TEST_CASE("a global trainer with a pending save is ended by exit()") {
    const temporary_folder::Folder folder;
    CHECK(exit_status_of([&] {
              trainer = std::make_unique<Trainer>();
              trainer->pending.emplace(sk::checkpoint::begin_save(trainer->rank, folder.path(), 1,
                                                                  sk::checkpoint::State{sk::Model{trainer->layer}}));
              std::exit(7);
          }) == 7);
}

}  // namespace exit_test
