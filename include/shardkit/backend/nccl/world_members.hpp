// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/nccl/communicator.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/backend/nccl/world_state.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

// Defines the members of World, and what is done with one.

namespace shardkit::nccl SHARDKIT_FACE {

SHARDKIT_CORE_INLINE World::World(detail::WorldState* made)
    : state_(made),
      communicator_(
          new shardkit::Communicator(std::make_shared<const Communicator>(*state_, state_->world_group(), "world"))) {
}
SHARDKIT_CORE_INLINE World::World(const UniqueId& id, std::size_t ranks, std::size_t rank, const Options& options,
                                  SourceLocation where)
    : World(new detail::WorldState(id, ranks, rank, options, where)) {}
SHARDKIT_CORE_INLINE World::World(const Launcher& launcher, const Options& options, SourceLocation where)
    : World(new detail::WorldState(launcher, options, where)) {}
SHARDKIT_CORE_INLINE World::World(Borrow borrowed, const Options& options, SourceLocation where)
    : World(new detail::WorldState(borrowed.comm, options, where)) {}
SHARDKIT_CORE_INLINE World::World(const Survivors& survivors, const Options& options, SourceLocation where)
    : World(new detail::WorldState(survivors.world.state(), survivors.lost, options, where)) {}
SHARDKIT_CORE_INLINE World::~World() = default;

SHARDKIT_CORE_INLINE void World::finish(SourceLocation where) { state_->finish(where); }
SHARDKIT_CORE_INLINE void World::abort() noexcept { state_->abort(); }
SHARDKIT_CORE_INLINE void World::revoke() noexcept { state_->revoke(); }
SHARDKIT_CORE_INLINE int World::device() const noexcept { return state_->device(); }
SHARDKIT_CORE_INLINE const Options& World::options() const noexcept { return state_->options(); }
SHARDKIT_CORE_INLINE engine::Traits World::traits() const noexcept { return state_->traits(); }
SHARDKIT_CORE_INLINE Streams World::streams() const noexcept { return state_->streams(); }
SHARDKIT_CORE_INLINE const shardkit::Communicator& World::communicator() const noexcept { return *communicator_; }
SHARDKIT_CORE_INLINE std::size_t World::most_bytes() const noexcept { return state_->most_bytes(); }
SHARDKIT_CORE_INLINE std::optional<ByteCount> World::communicator_memory(SourceLocation where) {
    return state_->communicator_memory(where);
}
SHARDKIT_CORE_INLINE void World::keep_pace(const Stream& stream, SourceLocation where) {
    state_->keep_pace(stream, where);
}

SHARDKIT_CORE_INLINE shardkit::Communicator borrow(World& world, Borrow borrowed, std::string_view axes,
                                                   SourceLocation where) {
    detail::WorldState& state = world.state();
    return shardkit::Communicator(
        std::make_shared<const Communicator>(state, state.borrow(borrowed.comm, axes, where), axes));
}
SHARDKIT_CORE_INLINE ncclComm* native(const shardkit::Communicator& comm, SourceLocation where) {
    const auto* const verbs = dynamic_cast<const Communicator*>(comm.verbs().get());
    if (verbs == nullptr) {
        throw_usage_error(where, "a communicator of the engine ", comm.engine_name(),
                          ", expected one of the engine nccl");
    }
    return verbs->native();
}

}  // namespace SHARDKIT_FACE

namespace shardkit::nccl::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void run_rank(World& world, const shardkit::detail::RankBody& body, SourceLocation where) {
    const gpu::detail::DeviceGuard guard(world.device(), where);
    try {
        // Before the rank's memory is freed: nothing may use it any more.
        const auto finish = [](const Streams& streams, SourceLocation line) {
            streams.compute.synchronize(line);
            streams.communication.synchronize(line);
            streams.reduction.synchronize(line);
        };
        body(world.communicator(), world.streams(), finish);
    } catch (...) {
        world.state().record_exception();
        world.abort();
        throw;
    }
    world.finish(where);
}

}  // namespace SHARDKIT_FACE
