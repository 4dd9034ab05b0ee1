// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <tuple>

#include <shardkit/backend/nccl/compiled_interface.hpp>
#include <shardkit/backend/nccl/compiled_kernels.hpp>
#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/rendezvous.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/rank/rank.hpp>

// Defines the functions of compiled_interface.hpp.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

namespace {

NcclIdBytes to_bytes(const nccl::UniqueId& id) noexcept {
    NcclIdBytes bytes;
    std::ranges::copy(id.bytes(), bytes.begin());
    return bytes;
}

class LauncherOf final : public NcclLauncher {
  public:
    explicit LauncherOf(const nccl::Launcher& read) : core(read) {}
    std::size_t rank() const noexcept override { return core.rank(); }
    std::size_t world_size() const noexcept override { return core.world_size(); }
    std::size_t local_rank() const noexcept override { return core.local_rank(); }
    int device() const noexcept override { return core.device(); }
    NcclIdBytes unique_id(std::chrono::milliseconds timeout, SourceLocation where) const override {
        return to_bytes(core.unique_id(timeout, where));
    }

    nccl::Launcher core;
};

class WorldOf final : public NcclWorld {
  public:
    template <class... Arguments>
    explicit WorldOf(const Arguments&... arguments) : core_(arguments...) {}

    void run(const shardkit::detail::RankBody& body, SourceLocation where) override {
        nccl::detail::run_rank(core_, body, where);
    }
    const shardkit::Communicator& communicator() override { return communicator_.emplace(core_.communicator()); }
    Streams streams() override { return core_.streams(); }
    void borrow(ncclComm* comm, std::string_view axes, void (*take)(void* to, const shardkit::Communicator& made),
                void* to, SourceLocation where) override {
        take(to, nccl::borrow(core_, nccl::Borrow{comm}, axes, where));
    }
    int device() const noexcept override { return core_.device(); }
    void keep_pace(SourceLocation where) override { core_.keep_pace(core_.streams().compute, where); }
    void abort() noexcept override { core_.abort(); }
    void finish(SourceLocation where) override { core_.finish(where); }
    nccl::World& core() noexcept { return core_; }

  private:
    nccl::World core_;
    std::optional<shardkit::Communicator> communicator_;
};

}  // namespace

NcclIdBytes make_nccl_id(SourceLocation where) { return to_bytes(nccl::UniqueId::create(where)); }
NcclIdBytes meet_over_tcp(const nccl::Meeting& meeting, std::chrono::milliseconds timeout, SourceLocation where) {
    return to_bytes(nccl::meet(meeting, timeout, where));
}
NcclLauncher* read_nccl_launcher(SourceLocation where) {
    return new LauncherOf(nccl::Launcher::from_environment(where));
}
NcclWorld* connect_nccl(const NcclIdBytes& id, std::size_t ranks, std::size_t rank, const nccl::Options& options,
                        SourceLocation where) {
    return new WorldOf(nccl::UniqueId::from_bytes(id, where), ranks, rank, options, where);
}
NcclWorld* connect_nccl(const NcclLauncher& launcher, const nccl::Options& options, SourceLocation where) {
    return new WorldOf(static_cast<const LauncherOf&>(launcher).core, options, where);
}
NcclWorld* survive_nccl(NcclWorld& world, std::span<const std::size_t> lost, const nccl::Options& options,
                        SourceLocation where) {
    return new WorldOf(nccl::Survivors{static_cast<WorldOf&>(world).core(), lost}, options, where);
}
NcclWorld* borrow_nccl(ncclComm* comm, const nccl::Options& options, SourceLocation where) {
    return new WorldOf(nccl::Borrow{comm}, options, where);
}

ncclComm* nccl_handle(const shardkit::Communicator& comm, SourceLocation where) { return nccl::native(comm, where); }

static_assert(std::tuple_size_v<NcclIdBytes> == nccl::UniqueId::size);

}  // namespace SHARDKIT_CHECKED_BUILD
