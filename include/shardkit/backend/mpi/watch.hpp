// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/job.hpp>
#include <shardkit/backend/mpi/turns.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/bounded_wait.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// Checks from time to time, during a long wait of a rank, whether the ranks that it waits for can still come.
class Watch {
  public:
    /// Watches one wait. `peer` is the member that the wait depends on; without it, all members. The arguments must
    /// outlive it.
    Watch(const Call& call, std::optional<std::size_t> peer, Job& job) : call_(call), peer_(peer), job_(job) {}

    /// Checks once.
    /// @throws PeerError when a rank that is needed has returned, or its process has ended; CommError after
    /// Options::timeout
    void look() {
        const Clock::time_point now = Clock::now();
        if (!begin_) { begin_ = now; }
        const bool at_processes = now - looked_at_processes_ > std::chrono::milliseconds(5);
        if (at_processes) { looked_at_processes_ = now; }
        {
            const Turns::Turn turn(job_.turns);
            job_.farewells.listen(call_.where);
        }
        if (peer_) {
            // A message that the peer sent before it returned may still be on its way, but not this long.
            const bool gone = job_.farewells.gone(call_.group.world_ranks[*peer_]);
            if (gone && !peer_left_) { peer_left_ = now; }
            if (peer_left_ && now - *peer_left_ > std::chrono::milliseconds(500)) { throw_returned(*peer_); }
            if (at_processes) { throw_if_ended(*peer_); }
        } else {
            for (std::size_t member = 0; member < call_.group.size(); ++member) {
                const std::size_t rank = call_.group.world_ranks[member];
                // A group's construction is no call over it: a rank that has returned has made it.
                if (job_.farewells.gone(rank) && job_.farewells.calls(rank, call_.channel) < call_.channel.calls) {
                    throw_returned(member);
                }
                if (at_processes) { throw_if_ended(member); }
            }
        }
        if (now - *begin_ > shardkit::detail::bounded_wait(job_.options.timeout)) {
            throw CommError("mpi", call_.doing(),
                            shardkit::detail::concat("not every rank has made this call within ",
                                                     job_.options.timeout.count(), " ms"),
                            call_.where);
        }
    }

  private:
    using Clock = std::chrono::steady_clock;

    [[noreturn]] void throw_returned(std::size_t member) const {
        const std::size_t gone = call_.group.world_ranks[member];
        const std::size_t self = call_.group.world_ranks[call_.group.rank];
        throw PeerError("mpi", call_.doing(), gone,
                        shardkit::detail::concat("rank ", gone, " returned before rank ", self, "'s ", call_.doing()),
                        call_.where);
    }
    void throw_if_ended(std::size_t member) const {
        const std::size_t rank = call_.group.world_ranks[member];
        if (!job_.host.has_ended(rank) || job_.farewells.gone(rank)) { return; }
        throw PeerError("mpi", call_.doing(), rank,
                        shardkit::detail::concat("the process of rank ", rank, " has ended"), call_.where);
    }

    const Call& call_;
    std::optional<std::size_t> peer_;
    Job& job_;
    std::optional<Clock::time_point> begin_;
    Clock::time_point looked_at_processes_{};
    std::optional<Clock::time_point> peer_left_;
};

}  // namespace shardkit::mpi::detail
