// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host_process.hpp>
#include <shardkit/backend/mpi/window.hpp>
#include <shardkit/backend/shared/round.hpp>
#include <shardkit/backend/shared/wait_word.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::mpi::detail {

/// Lets processes sleep on a word in shared memory, for at most `nap`, so that a process whose peer was killed wakes
/// up. std::atomic::wait only works for threads of one process. A sleeper that is killed stays counted: from then on,
/// each wake costs a system call.
struct ProcessSleep {
    static constexpr std::chrono::milliseconds nap{5};

    std::atomic<std::uint32_t> word{0};
    mutable std::atomic<std::uint32_t> sleepers{0};

    void sleep([[maybe_unused]] std::uint32_t seen) const noexcept {
#if defined(__linux__)
        static_assert(sizeof word == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);
        const timespec longest{0, std::chrono::nanoseconds(nap).count()};
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &word, FUTEX_WAIT, seen, &longest, nullptr, 0);
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
#else
        std::this_thread::yield();
#endif
    }
    /// Wakes all sleepers. If a sleeper comes at the same time, either it counts itself before this reads the count,
    /// or it finds the word changed.
    void wake_all() noexcept {
#if defined(__linux__)
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (sleepers.load(std::memory_order_relaxed) != 0) {
            syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        }
#endif
    }
};

using ProcessWord = shared::detail::WaitWord<ProcessSleep>;

/// The largest input in bytes that is carried with the call. Up to this size, an all-reduce is gathered by every
/// rank.
inline constexpr std::size_t carried_bytes = 1024;

/// A rank's state in a group, as the ranks of its host see it.
struct Member : shared::detail::Member<carried_bytes> {
    std::atomic<std::uint64_t> entered{0};  ///< Channel::calls of the rank
};

/// The meeting place of the ranks of one host, in the memory window of the first of them. The members follow it.
/// Ranks that exchange messages alone only tell each other there what they have entered.
struct alignas(shared::detail::padding) HostBlock {
    ProcessWord word;
    std::atomic<std::uint32_t> given_up_by{0};  ///< number of the first member that gave up waiting, plus 1

    static constexpr std::size_t bytes(std::size_t members) noexcept {
        return sizeof(HostBlock) + members * sizeof(Member);
    }
    static HostBlock* make(void* zeroed, std::size_t members) noexcept {
        auto* const block = new (zeroed) HostBlock;
        for (std::size_t i = 0; i < members; ++i) { new (block->members() + i) Member; }
        return block;
    }
    void note_given_up(std::size_t member) noexcept {
        std::uint32_t nobody = 0;
        given_up_by.compare_exchange_strong(nobody, static_cast<std::uint32_t>(member) + 1);
    }
    /// Returns the rank that gave up.
    /// @pre a rank has given up
    std::size_t who_gave_up() const noexcept { return given_up_by.load() - 1; }
    Member* members() noexcept { return reinterpret_cast<Member*>(this + 1); }
};

/// Returns how many collectives of the channel a member has entered, as it tells; null where this rank does not see
/// it.
inline const std::atomic<std::uint64_t>* entered_by(const Group& group, const Channel& channel, std::size_t member) {
    return channel.told != nullptr && group.is_here(member)
               ? &channel.told->members()[group.homes[member].place].entered
               : nullptr;
}

/// What ranks exchange to find out who shares a host.
struct HostRecord {
    std::uint64_t host = 0;  ///< hash of a running system and a namespace of its processes
    std::uint64_t process = HostProcess::own();
#if defined(__linux__)
    cpu_set_t processors{};
#endif

    /// Makes this process's record. Ranks of one host with different `part`s count as ranks of different hosts.
    static HostRecord here(std::size_t part) {
        HostRecord record;
        shardkit::detail::Fnv fnv;
        std::string boot;
        std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
        fnv.add(boot);
        struct stat names {};
        if (stat("/proc/self/ns/pid", &names) == 0) { fnv.add(names.st_ino); }
#if defined(__linux__)
        CPU_ZERO(&record.processors);
        sched_getaffinity(0, sizeof record.processors, &record.processors);
#endif
        fnv.add(part);
        record.host = fnv.hash;
        return record;
    }
};

/// The ranks of this rank's host: their processes, and their memory windows if all of them could be mapped.
class Host {
  public:
    Host() = default;
    Host(const std::vector<HostRecord>& records, std::size_t self)
        : processes_(records.size()), peers_(records.size()), self_(self) {
        for (const HostRecord& record : records) {
            hosts_.push_back(record.host);
            if (record.host != records[self].host) { continue; }
            ++ranks_;
            const std::size_t rank = hosts_.size() - 1;
            if (rank != self) { processes_[rank] = HostProcess(record.process); }
#if defined(__linux__)
            CPU_OR(&processors_, &processors_, &record.processors);
#endif
        }
    }

    /// Makes this rank's memory window: for its buffers, or for what ranks tell each other alone. If that fails, the
    /// returned address has no bytes.
    WindowAddress open_window(bool for_buffers) {
        for_buffers_ = for_buffers;
        window_ = Window::make(ranks_, for_buffers ? std::numeric_limits<std::size_t>::max() : told_bytes);
        return window_ ? window_->address() : WindowAddress{};
    }
    /// Maps the memory windows of the others. Returns whether that succeeded.
    bool map(const std::vector<WindowAddress>& windows) {
        if (!window_) { return false; }
        for (std::size_t rank = 0; rank < windows.size(); ++rank) {
            if (!is_here(rank)) { continue; }
            // A rank that could not see a peer's end might wait for ever for what that peer does not write.
            if (rank != self_ && !processes_[rank]) { return false; }
            peers_[rank] = rank == self_ ? HostPeer(*window_) : HostPeer(processes_[rank].number(), windows[rank]);
            if (!peers_[rank]) { return false; }
        }
        return true;
    }
    /// Shares no memory, because some window could not be mapped.
    void close() {
        window_.reset();
        peers_ = std::vector<HostPeer>(peers_.size());
    }

    /// Returns whether ranks of this host read and write each other's buffers.
    bool shares_memory() const noexcept { return window_ != nullptr && for_buffers_; }
    /// Returns this rank's memory window; null unless all of the job's could be mapped.
    const std::shared_ptr<Window>& window() const noexcept { return window_; }
    /// Sorts the members of a group by host.
    void sort(Group& group) const {
        std::vector<std::uint64_t> seen;
        for (std::size_t member = 0; member < group.size(); ++member) {
            const std::uint64_t of = hosts_[group.world_ranks[member]];
            const auto found = static_cast<std::size_t>(std::find(seen.begin(), seen.end(), of) - seen.begin());
            if (found == seen.size()) {
                seen.push_back(of);
                group.hosts.emplace_back();
            }
            group.homes.push_back({found, group.hosts[found].size()});
            group.hosts[found].push_back(member);
        }
        group.host = group.homes[group.rank].host;
        group.place = group.homes[group.rank].place;
    }
    bool is_here(std::size_t rank) const noexcept { return hosts_[rank] == hosts_[self_]; }
    std::size_t ranks() const noexcept { return ranks_; }
    /// Returns the number of processors that the ranks of this host may use together.
    std::size_t processors() const noexcept {
#if defined(__linux__)
        return static_cast<std::size_t>(CPU_COUNT(&processors_));
#else
        return 1;
#endif
    }

    /// Returns where this process finds `bytes` bytes at the rank's `address`; null if they are not in its memory
    /// window.
    /// @pre is_here(rank)
    std::byte* find(std::size_t rank, const void* address, std::size_t bytes) const noexcept {
        return peers_[rank].find(address, bytes);
    }
    /// Returns the address of an offset in the rank's memory window.
    std::byte* at(std::size_t rank, std::size_t offset) const noexcept { return peers_[rank].data() + offset; }
    /// Returns whether the process of a rank of this host has ended.
    bool has_ended(std::size_t rank) const noexcept { return rank < processes_.size() && processes_[rank].ended(); }

  private:
    /// The bytes of a window without buffers: room for thousands of groups.
    static constexpr std::size_t told_bytes = std::size_t{64} << 20U;

    std::vector<std::uint64_t> hosts_;    // by rank
    std::vector<HostProcess> processes_;  // by rank; none for this one and ranks of other hosts
    std::vector<HostPeer> peers_;         // likewise, with this one
    std::shared_ptr<Window> window_;      // buffers in it may outlive the World
    bool for_buffers_ = true;
    std::size_t self_ = 0;
    std::size_t ranks_ = 0;
#if defined(__linux__)
    cpu_set_t processors_{};
#endif
};

}  // namespace shardkit::mpi::detail
