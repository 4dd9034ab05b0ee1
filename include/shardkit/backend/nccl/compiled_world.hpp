// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/backend/nccl/compiled_interface.hpp>
#include <shardkit/backend/nccl/meeting.hpp>
#include <shardkit/backend/nccl/world_options.hpp>
#include <shardkit/rank/rank.hpp>

// What nccl.hpp is in the compiled form: neither CUDA's nor NCCL's headers, whose handles are pointers to classes
// that these declare.

namespace shardkit::nccl SHARDKIT_BUILD {

/// An id that the ranks of one World share before they are connected: see backend/nccl/unique_id.hpp.
class UniqueId {
  public:
    static constexpr std::size_t size = std::tuple_size_v<compiled::NcclIdBytes>;

    static UniqueId create(SourceLocation where = SourceLocation::current()) {
        return UniqueId(compiled::make_nccl_id(where));
    }
    static UniqueId from_bytes(std::span<const std::byte> bytes, SourceLocation where = SourceLocation::current()) {
        if (bytes.size() != size) {
            throw_invalid_argument(where, "UniqueId: ", bytes.size(), " bytes given, expected ", size);
        }
        compiled::NcclIdBytes id;
        std::copy(bytes.begin(), bytes.end(), id.begin());
        return UniqueId(id);
    }
    explicit UniqueId(const compiled::NcclIdBytes& id) noexcept : id_(id) {}

    std::span<const std::byte, size> bytes() const noexcept { return id_; }
    const compiled::NcclIdBytes& core() const noexcept { return id_; }

    friend bool operator==(const UniqueId& a, const UniqueId& b) noexcept = default;

  private:
    compiled::NcclIdBytes id_;
};

/// Distributes the id that rank 0 creates to every rank of the job: see backend/nccl/rendezvous.hpp.
inline UniqueId meet(const Meeting& meeting, std::chrono::milliseconds timeout,
                     SourceLocation where = SourceLocation::current()) {
    return UniqueId(compiled::meet_over_tcp(meeting, timeout, where));
}

/// One process's place in a job, read from the environment that launchers such as torchrun set: see
/// backend/nccl/launcher.hpp.
class Launcher {
  public:
    static Launcher from_environment(SourceLocation where = SourceLocation::current()) {
        return Launcher(compiled::read_nccl_launcher(where));
    }
    explicit Launcher(compiled::NcclLauncher* read) noexcept : launcher_(read) {}

    std::size_t rank() const noexcept { return launcher_->rank(); }
    std::size_t world_size() const noexcept { return launcher_->world_size(); }
    std::size_t local_rank() const noexcept { return launcher_->local_rank(); }
    int device() const noexcept { return launcher_->device(); }
    UniqueId unique_id(std::chrono::milliseconds timeout, SourceLocation where = SourceLocation::current()) const {
        return UniqueId(launcher_->unique_id(timeout, where));
    }
    const compiled::NcclLauncher& core() const noexcept { return *launcher_; }

  private:
    compiled::Handle<compiled::NcclLauncher> launcher_;
};

/// Names a communicator of the user that a World uses and does not destroy: see
/// backend/nccl/borrowed_communicator.hpp.
struct Borrow {
    ncclComm* comm;
};

class World;

/// The remaining ranks of a World after some are lost: see backend/nccl/shrink.hpp.
struct Survivors {
    World& world;
    std::span<const std::size_t> lost;
};

/// Owns everything that the communicators of one rank share: see backend/nccl/world.hpp.
class World {
  public:
    World(const UniqueId& id, std::size_t ranks, std::size_t rank, const Options& options = {},
          SourceLocation where = SourceLocation::current())
        : world_(compiled::connect_nccl(id.core(), ranks, rank, options, where)) {}
    explicit World(const Launcher& launcher, const Options& options = {},
                   SourceLocation where = SourceLocation::current())
        : world_(compiled::connect_nccl(launcher.core(), options, where)) {}
    explicit World(Borrow borrowed, const Options& options = {}, SourceLocation where = SourceLocation::current())
        : world_(compiled::borrow_nccl(borrowed.comm, options, where)) {}
    explicit World(const Survivors& survivors, const Options& options = {},
                   SourceLocation where = SourceLocation::current())
        : world_(compiled::survive_nccl(*survivors.world.world_, survivors.lost, options, where)) {}
    World(World&&) = delete;

    int device() const noexcept { return world_->device(); }
    /// Counts the launch of a CUDA graph with verbs on the compute stream.
    void keep_pace(const Stream& /*compute*/, SourceLocation where = SourceLocation::current()) {
        world_->keep_pace(where);
    }
    void keep_pace(SourceLocation where = SourceLocation::current()) { world_->keep_pace(where); }
    void abort() noexcept { world_->abort(); }
    void finish(SourceLocation where = SourceLocation::current()) { world_->finish(where); }
    compiled::NcclWorld& core() const noexcept { return *world_; }

  private:
    compiled::Handle<compiled::NcclWorld> world_;
};

/// Runs `f(rank)` in this thread as one rank of `mesh`, over the ranks of `world`: see backend/nccl/run.hpp. The
/// program links compiled_nccl.hpp's core.
template <MeshType Mesh, class F>
void run(Mesh mesh, World& world, F&& f, RankOptions rank_options = {},
         SourceLocation where = SourceLocation::current()) {
    world.core().run(shardkit::detail::UserBody<MeshRank<Mesh>, F>(mesh, f, rank_options, where), where);
}
template <MeshType Mesh, class F>
void run(Mesh mesh, F&& f, RankOptions rank_options = {}, const Options& options = {},
         SourceLocation where = SourceLocation::current()) {
    World world(Launcher::from_environment(where), options, where);
    run(mesh, world, f, rank_options, where);
}

/// Returns one rank of `mesh` over the ranks of `world`, without a function that it ends with: see
/// backend/nccl/run.hpp.
template <MeshType Mesh>
MeshRank<Mesh> make_rank(Mesh mesh, World& world, RankOptions rank_options = {},
                         SourceLocation where = SourceLocation::current()) {
    return MeshRank<Mesh>(mesh, world.core().communicator(), rank_options, world.core().streams(), where);
}
/// Returns a communicator of the user's over some of the World's ranks, for Rank::adopt: see
/// backend/nccl/native.hpp. Who calls it includes verbs.hpp.
template <class Lent = shardkit::Communicator>
Lent borrow(World& world, Borrow borrowed, std::string_view axes, SourceLocation where = SourceLocation::current()) {
    std::optional<Lent> made;
    world.core().borrow(
        borrowed.comm, axes,
        [](void* to, const shardkit::Communicator& from) { static_cast<std::optional<Lent>*>(to)->emplace(from); },
        &made, where);
    return *std::move(made);
}

/// Returns the stream of CUDA's in which a rank computes: see backend/nccl/native.hpp.
/// @throws UsageError for a rank of another engine
inline CUstream_st* stream(const Rank& rank, SourceLocation where = SourceLocation::current()) {
    return rank.compute_stream().native(where);
}
/// Returns NCCL's own communicator: see there.
/// @throws UsageError for a communicator of another engine
inline ncclComm* native(const shardkit::Communicator& comm, SourceLocation where = SourceLocation::current()) {
    return compiled::nccl_handle(comm, where);
}

}  // namespace SHARDKIT_BUILD
