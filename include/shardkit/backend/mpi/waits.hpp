// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <shardkit/backend/host/processor.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/farewells.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/options.hpp>
#include <shardkit/backend/mpi/watch.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi::detail {

/// How a rank waits, for messages and for the words of its host; every wait ends. The part of a World that makes no
/// groups.
class Waits {
  public:
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

    const Options& options() const noexcept { return options_; }
    const Host& host() const noexcept { return host_; }
    /// Room for 4 requests per rank.
    std::span<MPI_Request> requests() noexcept { return requests_; }

    /// Waits until the requests have ended. `peer`: the member that they depend on, or all members.
    /// @throws as Watch::look
    void await(const Call& call, std::span<MPI_Request> requests, std::optional<std::size_t> peer = {}) {
        Watch watch(call, peer, farewells_, host_, options_);
        for (std::uint32_t looks = 1;; ++looks) {
            int ended = 0;
            call.check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                       "MPI_Testall");
            if (ended != 0) { return; }
            if (looks < spins_) {
                host::detail::pause();
                continue;
            }
            std::this_thread::yield();
            if (looks % 64 == 0) { watch.look(); }
        }
    }

    /// Waits until the word of the call's group reaches the target: all have entered.
    /// @throws as Watch::look; PeerError when a member has given up. Then nobody enters any more.
    void await_entry(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.group.block->word;
        shared::detail::Progress seen = word.poll(target, word_spins_);
        if (seen == shared::detail::Progress::pending) {
            Watch watch(call, {}, farewells_, host_, options_);
            try {
                seen = word.block(target, [&] { watch.look(); });
            } catch (...) {
                call.group.block->note_given_up(call.group.place);
                // The last one may have come in this moment.
                if (word.give_up(target) != shared::detail::Progress::reached) { throw; }
                return;
            }
        }
        if (seen == shared::detail::Progress::poisoned) { throw_given_up(call); }
    }
    /// The same for the exit, which is counted even when somebody has given up.
    void await_exit(const Call& call, std::uint32_t target) {
        ProcessWord& word = call.group.block->word;
        Watch watch(call, {}, farewells_, host_, options_);
        try {
            word.wait_for_exit(target, word_spins_, [&] { watch.look(); });
        } catch (...) {
            call.group.block->note_given_up(call.group.place);
            word.poison();
            throw;
        }
    }
    [[noreturn]] void throw_given_up(const Call& call) {
        // Why it has, if this rank can see that.
        Watch(call, {}, farewells_, host_, options_).look();
        const std::size_t peer = call.group.world_ranks[call.group.neighbours()[call.group.block->who_gave_up()]];
        throw PeerError("mpi", call.doing(), peer,
                        shardkit::detail::concat("rank ", peer, " has given up waiting for a rank of this group"),
                        call.where);
    }

    /// Collective over the call's group: every member's record, by member.
    template <class Record>
    std::vector<Record> gather(const Call& call, const Record& own) {
        Group& group = call.group;
        const std::span<Record> records = group.records<Record>(group.size());
        records[group.rank] = own;
        complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
            return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, records.data(), sizeof(Record), MPI_BYTE,
                                  group.comm, request);
        });
        return std::vector<Record>(records.begin(), records.end());
    }
    /// Starts one collective of MPI's and waits for it: start(request) is the nonblocking call. Never a blocking one,
    /// which would hang where a rank is gone, and spin where ranks share a processor.
    template <class Start>
    void complete(const Call& call, std::string_view mpi_call, Start start) {
        MPI_Request& request = requests_.front();
        request = MPI_REQUEST_NULL;
        call.check(start(&request), mpi_call);
        await(call, {&request, 1});
    }

  protected:
    explicit Waits(const Options& options) : options_(options), spins_(spins(options)) {}
    ~Waits() = default;

    /// So many ranks wait on words: each may spin, and the thread that makes the calls beside the one that waits for
    /// it.
    void spin_with(std::size_t ranks) noexcept {
        const std::size_t spinning = ranks * (options_.overlap ? 2 : 1);
        word_spins_ = shared::detail::SpinBudget(spinning <= host_.processors() ? shared::detail::brief_spins : 0);
    }

    Options options_;
    std::uint32_t spins_;  ///< looks at messages before a waiting rank yields its processor
    Farewells farewells_;
    Host host_;
    std::vector<MPI_Request> requests_;

  private:
    /// Looks before a waiting rank yields its processor: none where it may have to share it.
    static std::uint32_t spins(const Options& options) {
        return host::detail::allowed_cpus() > (options.overlap ? 2U : 1U) ? 2000 : 1;
    }

    shared::detail::SpinBudget word_spins_;
};

}  // namespace shardkit::mpi::detail
