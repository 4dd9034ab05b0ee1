// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world_options.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>

struct ncclComm;

namespace shardkit {
class Communicator;
}
namespace shardkit::nccl::detail {
class WorldState;
}

namespace shardkit::nccl SHARDKIT_FACE {

/// Names a communicator of the user that a World uses and does not destroy. The user makes no calls on it while the
/// World uses it, and destroys it after the World's end.
struct Borrow {
    ncclComm* comm;  ///< an ncclComm_t
};

class World;

/// The remaining ranks of a World after some are lost. The user finds out which ranks are lost, and tells every
/// remaining rank: NCCL reports that a rank is gone, but not which.
struct Survivors {
    World& world;
    std::span<const std::size_t> lost;  ///< ranks of `world`, in any order
};

/// Owns everything that the communicators of one rank share: NCCL's handles, streams, memory and the journal. It must
/// outlive them, and all containers made over them. For one GPU and one rank, used by one thread. The GPU stays
/// selected in a thread that had selected none. Failures: a call that fails, a rank that is gone, or a peer that does
/// not come within Options::timeout is a CommError. The World then aborts all communicators it made, so that the
/// GPU's work ends and its peers notice, and every later verb throws; the World can only be destroyed. A borrowed
/// communicator is never aborted.
class World final {
  public:
    /// Connects `ranks` ranks; this one is number `rank`. Collective: all ranks must give the same id.
    /// @throws CommError when a call fails, a rank does not come within the timeout, or NCCL is too old;
    ///         std::invalid_argument for a rank that is not below `ranks`, or a default stream; gpu::Error
    World(const UniqueId& id, std::size_t ranks, std::size_t rank, const Options& options = {},
          SourceLocation where = SourceLocation::current());
    /// Connects the processes of a launcher's job, on the launcher's GPU unless the options name another one.
    explicit World(const Launcher& launcher, const Options& options = {},
                   SourceLocation where = SourceLocation::current());
    /// Works on a communicator of the user, with its ranks. Local.
    /// @throws std::invalid_argument when it is on another GPU than the options say
    explicit World(Borrow borrowed, const Options& options = {}, SourceLocation where = SourceLocation::current());
    /// Shrinks a World to the remaining ranks, in their order: after a failure, if it was survivable, or before one,
    /// to remove ranks. Collective: all remaining ranks must give the same list. The old World runs no more verbs;
    /// until it ends its containers keep their memory, from which a rank may copy its values. The new World has
    /// memory and streams of its own, on the same GPU.
    /// @throws std::invalid_argument for a wrong list of ranks, or a World over a communicator of the user; CommError
    ///         when NCCL is older than 2.27.3, the old World failed without being survivable, or a remaining rank
    ///         does not come within the timeout of `options`
    explicit World(const Survivors& survivors, const Options& options = {},
                   SourceLocation where = SourceLocation::current());
    World(World&&) = delete;
    /// Finishes, if `finish` was not called. When an exception leaves the scope, after a failure, and in another
    /// thread than its own, it aborts instead. It ends within the timeout, and within 30 seconds of an abort. If work
    /// of a borrowed communicator hangs, or a CUDA graph with verbs still exists, memory and streams are left behind:
    /// freeing them would wait forever. A static World that exit() ends makes no calls and does not wait.
    ~World();

    /// Ends the World, as its last call: waits for all streams, then ends and destroys the communicators that this
    /// World made. All remaining ranks must call it. CUDA graphs with verbs must be destroyed before.
    /// @throws CommError when that fails or takes longer than the timeout
    void finish(SourceLocation where = SourceLocation::current());
    /// Ends this rank's part without its peers, whose verbs then fail, at the latest after their timeout. Returns at
    /// once; NCCL ends running work in the background.
    void abort() noexcept;
    /// Aborts all communicators except the World's, which can then be shrunk to the remaining ranks: see Survivors.
    /// Its running work ends at once. Where NCCL cannot revoke it, before 2.28.7, it is aborted too.
    void revoke() noexcept;

    int device() const noexcept;
    const Options& options() const noexcept;
    engine::Traits traits() const noexcept;
    /// Returns the streams for a Rank.
    Streams streams() const noexcept;
    /// Returns the communicator over all ranks. Who calls it includes verbs.hpp.
    const shardkit::Communicator& communicator() const noexcept;

    /// Returns the most of the GPU's memory that has been in use: the World's own, and buffers, each rounded up as a
    /// plan does. NCCL's own memory is not in it.
    std::size_t most_bytes() const noexcept;
    /// Returns the memory of the GPU that NCCL has allocated for this rank's communicators, lent ones too, which a
    /// plan's `memory.communicators` estimates; nothing where NCCL does not count it, before 2.29.7. Does not wait.
    /// @throws CommError
    std::optional<ByteCount> communicator_memory(SourceLocation where = SourceLocation::current());

    /// Counts the launch of a CUDA graph with verbs as a verb on `stream`, for a loop that never waits otherwise: see
    /// Options::verbs_ahead.
    /// @throws CommError when a peer is gone; UsageError for a stream of the host
    void keep_pace(const Stream& stream, SourceLocation where = SourceLocation::current());
    /// Counts it likewise, on the compute stream.
    void keep_pace(SourceLocation where = SourceLocation::current()) { keep_pace(streams().compute, where); }

    /// Returns what it is made of, for the engine itself.
    detail::WorldState& state() const noexcept { return *state_; }

  private:
    explicit World(detail::WorldState* made);

    shardkit::detail::Owned<detail::WorldState> state_;
    shardkit::detail::Owned<const shardkit::Communicator> communicator_;  // ends first, as it uses the state
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/nccl/world_members.hpp>
#endif
