// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/rank/rank.hpp>

// What a trainer's file calls of NCCL in the compiled form; compiled_nccl.hpp defines it.

struct ncclComm;

namespace shardkit::nccl SHARDKIT_CHECKED_BUILD {
struct Options;
}
namespace shardkit::nccl {
struct Meeting;
}

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using NcclIdBytes = std::array<std::byte, 128>;
NcclIdBytes make_nccl_id(SourceLocation where);
NcclIdBytes meet_over_tcp(const nccl::Meeting& meeting, std::chrono::milliseconds timeout, SourceLocation where);

/// An nccl::Launcher.
class NcclLauncher {
  public:
    virtual ~NcclLauncher() = default;
    NcclLauncher(NcclLauncher&&) = delete;

    virtual std::size_t rank() const noexcept = 0;
    virtual std::size_t world_size() const noexcept = 0;
    virtual std::size_t local_rank() const noexcept = 0;
    virtual int device() const noexcept = 0;
    virtual NcclIdBytes unique_id(std::chrono::milliseconds timeout, SourceLocation where) const = 0;

  protected:
    NcclLauncher() = default;
};
NcclLauncher* read_nccl_launcher(SourceLocation where);

/// An nccl::World.
class NcclWorld {
  public:
    virtual ~NcclWorld() = default;
    NcclWorld(NcclWorld&&) = delete;

    virtual void run(const shardkit::detail::RankBody& body, SourceLocation where) = 0;
    virtual const shardkit::Communicator& communicator() = 0;
    virtual Streams streams() = 0;
    /// Calls take(to, the communicator of NCCL's for Rank::adopt).
    virtual void borrow(ncclComm* comm, std::string_view axes,
                        void (*take)(void* to, const shardkit::Communicator& made), void* to,
                        SourceLocation where) = 0;
    virtual int device() const noexcept = 0;
    virtual void keep_pace(SourceLocation where) = 0;
    virtual void abort() noexcept = 0;
    virtual void finish(SourceLocation where) = 0;

  protected:
    NcclWorld() = default;
};
NcclWorld* connect_nccl(const NcclIdBytes& id, std::size_t ranks, std::size_t rank, const nccl::Options& options,
                        SourceLocation where);
NcclWorld* connect_nccl(const NcclLauncher& launcher, const nccl::Options& options, SourceLocation where);
/// Makes a World of the ranks of another one that are not lost.
NcclWorld* survive_nccl(NcclWorld& world, std::span<const std::size_t> lost, const nccl::Options& options,
                        SourceLocation where);
NcclWorld* borrow_nccl(ncclComm* comm, const nccl::Options& options, SourceLocation where);

/// @throws UsageError for a communicator of another engine
ncclComm* nccl_handle(const shardkit::Communicator& comm, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
