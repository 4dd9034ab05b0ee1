// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/self/world.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/no_shard.hpp>

#include "job.hpp"
#include "policy_trainer.hpp"

namespace benchmarks::policies {

/// The check run on one rank, where nothing is communicated.
template <class T>
Reference<T> train_alone(const Job& job) {
    shardkit::self::World world;
    shardkit::Context<shardkit::self::Engine> context(shardkit::DeviceMesh<1>{}.grid(),
                                                      shardkit::self::Communicator(world), {});
    return PolicyTrainer<shardkit::self::Engine, T, shardkit::NoShard>(context, job.options, job.busy, {})
        .reference();
}

}  // namespace benchmarks::policies
