// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <shardkit/backend/mpi/arrivals.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/returned_ranks.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/recorder/record_files.hpp>

namespace shardkit::mpi::detail {

/// The state that all lanes of a World share: the options, the journal of the verbs that are given to a stream, the
/// ranks of this host, which ranks have returned, and whose turn it is to call MPI.
struct Job {
    Job(const Options& given, std::size_t ranks) : options(given), returned(ranks) {}

    const Options options;
    engine::Journal journal;  ///< used by the rank's own thread
    Arrivals arrivals;        ///< while the World is made
    Host host;
    ReturnedRanks returned;
    CallTurns turns;
    shardkit::detail::RecordWriter* records = nullptr;  ///< the World's
};

/// What a rank waits for: that others enter a call, that those which have entered it finish, or that they return.
enum class Awaited : std::uint8_t { entry, exit, returns };

/// Checks from time to time, during a long wait of a rank, whether the ranks that it waits for can still come.
class Watch {
  public:
    /// Watches one wait. `peer` is the member that the wait depends on; without it, all members. The arguments must
    /// outlive it.
    Watch(const Call& call, std::optional<std::size_t> peer, Job& job, Awaited awaited)
        : call_(call), peer_(peer), job_(job), awaited_(awaited) {}

    /// Returns whether the last check was long ago, as where each poll takes long because processors are shared.
    bool is_due() noexcept {
        const Clock::time_point now = Clock::now();
        begin(now);
        return now - looked_ > interval;
    }
    /// Checks once.
    /// @throws PeerError when a rank that is needed has returned, or its process has ended; that or, where it does
    /// not know who is late, CommError when the time is over
    void look() {
        const Clock::time_point now = Clock::now();
        begin(now);
        looked_ = now;
        const bool at_processes = now - looked_at_processes_ > interval;
        if (at_processes) { looked_at_processes_ = now; }
        {
            const CallTurns::Turn turn(job_.turns);
            job_.returned.listen(call_.where);
        }
        if (peer_) {
            // A message that the peer sent before it returned may still be on its way, but not this long.
            const bool gone = job_.returned.gone(call_.group.world_ranks[*peer_]);
            if (gone && !peer_left_) { peer_left_ = now; }
            if (peer_left_ && now - *peer_left_ > std::chrono::milliseconds(500)) { throw_returned(*peer_); }
            if (at_processes) { throw_if_ended(*peer_); }
        } else {
            for (std::size_t member = 0; member < call_.group.size(); ++member) {
                const std::size_t rank = call_.group.world_ranks[member];
                // A group's construction is no call over it: a rank that has returned has made it.
                if (awaited_ != Awaited::returns && job_.returned.gone(rank) &&
                    job_.returned.calls(rank, call_.channel) < call_.channel.calls) {
                    throw_returned(member);
                }
                if (at_processes) { throw_if_ended(member); }
            }
        }
        const std::chrono::milliseconds limit =
            job_.journal.limit(awaited_ == Awaited::exit ? job_.options.finish_timeout : job_.options.timeout);
        const auto warning = [&](std::chrono::milliseconds after) { return doing_late(after) + late_ranks().text; };
        if (wait_.is_late(limit, job_.options.on_late, warning)) { throw_late(limit); }
    }
    /// Writes this rank's record and waits for the others'. Returns where they are; "" without files.
    static std::string write_records(Job& job, const std::string& why) {
        return job.records == nullptr ? "" : job.records->tell_and_wait(why);
    }

  private:
    using Clock = shardkit::detail::LateWait::Clock;
    static constexpr std::chrono::milliseconds interval{5};

    void begin(Clock::time_point now) noexcept {
        if (wait_.has_begun()) { return; }
        wait_.begin();
        looked_ = now;
    }
    std::string doing_late(std::chrono::milliseconds after) const {
        return shardkit::detail::concat("not every rank has made ", call_.doing(), " at ", call_.where.file, ":",
                                        call_.where.line, " after ", after.count(), " ms");
    }
    [[noreturn]] void throw_late(std::chrono::milliseconds limit) const {
        const shardkit::detail::MissingRanks found = late_ranks();
        const std::string text = shardkit::detail::concat("not every rank has made this call within ", limit.count(),
                                                          " ms", found.text, write_records(job_, doing_late(limit)));
        if (found.ranks.empty()) { throw CommError("mpi", call_.doing(), text, call_.where); }
        throw PeerError("mpi", call_.doing(), found.ranks.front(), text, call_.where);
    }
    /// Returns who has not come, as far as this rank can see.
    shardkit::detail::MissingRanks late_ranks() const {
        shardkit::detail::MissingRanks found;
        bool sees_all = true;
        for (std::size_t member = 0; member < call_.group.size(); ++member) {
            if (member == call_.group.rank || (peer_ && member != *peer_)) { continue; }
            const std::size_t rank = call_.group.world_ranks[member];
            bool late = peer_.has_value();
            if (awaited_ == Awaited::returns) {
                late = !job_.returned.gone(rank);
            } else if (!peer_) {
                const std::atomic<std::uint64_t>* const entered = entered_by(call_.group, call_.channel, member);
                late = entered != nullptr && entered->load(std::memory_order_relaxed) <= call_.sequence;
                sees_all = sees_all && entered != nullptr;
            }
            if (late) { found.ranks.push_back(rank); }
        }
        if (!found.ranks.empty()) {
            found.text = shardkit::detail::concat(": ", shardkit::detail::ranks_text(found.ranks),
                                                  found.ranks.size() == 1 ? " has" : " have",
                                                  awaited_ == Awaited::returns ? " not returned" : " not entered it");
        } else if (call_.channel.told != nullptr) {
            found.text = sees_all ? ": all ranks have entered it" : ": all ranks of this host have entered it";
        } else if (const auto here = job_.arrivals.ranks(); here.size() > 1) {  // others than this one
            found.text = shardkit::detail::concat(": of this host ", shardkit::detail::ranks_text(here), " are here");
        }
        return found;
    }
    [[noreturn]] void throw_returned(std::size_t member) const {
        const std::size_t gone = call_.group.world_ranks[member];
        const std::size_t self = call_.group.world_ranks[call_.group.rank];
        throw PeerError("mpi", call_.doing(), gone,
                        shardkit::detail::concat("rank ", gone, " returned before rank ", self, "'s ", call_.doing()),
                        call_.where);
    }
    void throw_if_ended(std::size_t member) {
        const std::size_t rank = call_.group.world_ranks[member];
        if (!job_.host.has_ended(rank) || job_.returned.gone(rank)) { return; }
        // Its farewell may still be on its way: it is heard by the next time.
        if (awaited_ == Awaited::returns && !std::exchange(saw_an_end_, true)) { return; }
        throw PeerError("mpi", call_.doing(), rank,
                        shardkit::detail::concat("the process of rank ", rank, " has ended"), call_.where);
    }

    const Call& call_;
    std::optional<std::size_t> peer_;
    Job& job_;
    Awaited awaited_;
    bool saw_an_end_ = false;  // of a process
    shardkit::detail::LateWait wait_;
    Clock::time_point looked_{};
    Clock::time_point looked_at_processes_{};
    std::optional<Clock::time_point> peer_left_;
};

}  // namespace shardkit::mpi::detail
