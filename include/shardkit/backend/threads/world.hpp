// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/host/processor.hpp>
#include <shardkit/backend/threads/group.hpp>
#include <shardkit/backend/threads/late_watch.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/rank_state.hpp>
#include <shardkit/backend/threads/wait_word.hpp>
#include <shardkit/comm/call.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/comm/streams.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/detail/ticks.hpp>

namespace shardkit::threads::detail {

/// Owns everything that the ranks of one launch share: the groups, which live until every rank has ended, the state
/// of each rank, the threads of its streams, and the first failure. The launching thread owns it.
class World : shardkit::detail::NotCopied {
  public:
    /// Makes what a launch of `ranks` ranks shares.
    /// @throws std::invalid_argument for zero ranks or a deadlock check without a positive interval
    [[gnu::cold]] World(std::size_t ranks, const LaunchOptions& options, SourceLocation where)
        : ranks_(checked_size(ranks, options, where)),
          options_(options),
          world_group_(make_group(everybody(ranks))),
          states_(new RankState[ranks]()),
          running_(ranks) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            RankState& state = states_[rank];
            state.spins = SpinBudget(spins(ranks));
            for (ThreadState& stream : state.streams) { stream.spins = SpinBudget(spins(all_threads())); }
        }
    }
    /// Frees what the ranks shared; the remaining work of streams has run then, or was dropped. @pre every rank has
    /// ended
    [[gnu::cold]] ~World() {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            // Both settle before either ends, as one may wait for the other.
            states_[rank].stream(Caller::communication).settle();
            states_[rank].stream(Caller::reduction).settle();
            states_[rank].queues = {};
        }
    }

    std::size_t size() const noexcept { return ranks_; }
    const std::shared_ptr<Group>& world_group() const noexcept { return world_group_; }
    RankState& state(std::size_t rank) const noexcept { return states_[rank]; }
    RankState& state(const GroupHandle& handle) const noexcept { return states_[handle.world_rank(handle.rank)]; }

    /// Makes a rank's streams, if LaunchOptions::overlap says so; called before the rank's own thread starts.
    /// @throws std::system_error when a thread cannot be made
    [[gnu::cold]] void start_streams(std::size_t rank) {
        if (options_.overlap == Overlap::none) { return; }
        for (auto& queue : states_[rank].queues) {
            queue = shardkit::detail::Owned<host::detail::CommandQueue>(
                new host::detail::CommandQueue(spins(all_threads())));
        }
    }
    /// Returns when all work that the rank gave to its streams has run.
    /// @throws the first exception of that work
    void drain(std::size_t rank) {
        const RankState& state = states_[rank];
        Streams{{}, state.stream(Caller::communication), state.stream(Caller::reduction)}.synchronize();
    }
    /// Returns which of the rank's streams it is.
    /// @throws UsageError when it is none of them
    Caller owner(const Stream& stream, const GroupHandle& handle, SourceLocation where) const {
        for (const Caller caller : {Caller::communication, Caller::reduction}) {
            const auto& queue = state(handle).queues[RankState::index(caller)];
            if (queue && stream.runs_on(*queue)) { return caller; }
        }
        throw_usage_error(where,
                          "threads: the stream is no stream of this rank's; pass a default one, or the "
                          "communication_stream() or reduction_stream() of the rank");
    }

    /// Returns a rank's end of a group, under a name.
    GroupHandle handle(Group& group, std::size_t rank, std::string_view axes) {
        RankState& its = states_[group.world_ranks()[rank]];
        return {this, &group, rank, &its.journal.label(axes, group.world_ranks()), &its};
    }
    /// Makes a group, poisoned if a rank has failed already. It lives as long as its handles, then until the calls of
    /// streams over it have run and another group is made.
    std::shared_ptr<Group> make_group(std::vector<std::size_t> world_ranks) {
        auto group = std::make_shared<Group>(std::move(world_ranks), options_.overlap);
        const std::lock_guard lock(mutex_);
        if (failure_) { group->poison(); }
        groups_.erase_if([](const auto& kept) { return kept.use_count() == 1 && !kept->in_use(); });
        groups_.push_back(group);
        return group;
    }

    /// Makes the handle's thread wait until `word` reaches `target`.
    /// @throws PeerError when that cannot happen any more, because one of `needed` has returned or any rank failed
    void wait_for_entry(const GroupHandle& handle, const WaitWord& word, std::uint32_t target,
                        const shardkit::Call& call, std::span<const std::size_t> needed) {
        Progress progress = word.poll(target, handle.thread->spins);
        if (progress == Progress::pending) {
            WaitRecord& record = handle.thread->record;
            record.begin(word, target);
            progress = word.block(target);
            record.end();
        }
        if (progress == Progress::poisoned) { throw_peer_error(handle, call, needed); }
    }

    [[noreturn, gnu::cold]] void throw_peer_error(const GroupHandle& handle, const shardkit::Call& call,
                                                  std::span<const std::size_t> needed) {
        const std::lock_guard lock(mutex_);
        const Failure& reason = handle.thread->stopped_by.emplace(why(handle, call, needed));
        throw PeerError("threads", shardkit::detail::concat(name(call.signature.verb), " over ", handle.axes()),
                        reason.rank, reason.text, call.where);
    }

    /// Records that the rank's function has returned; calls of its peers that need it cannot complete.
    void rank_returned(std::size_t rank) noexcept {
        const std::lock_guard lock(mutex_);
        for (const auto& group : groups_) { group->poison_calls_with(rank); }
        end(rank, Fate::returned);
    }

    /// Records that the rank's function has ended with an exception of its own.
    [[gnu::cold]] void rank_failed(std::size_t rank, const char* what) noexcept {
        const std::lock_guard lock(mutex_);
        if (!failure_) {
            failure_.emplace(Failure{rank, {}});
            try {
                failure_->text = shardkit::detail::concat("rank ", rank, " failed: ", what);
            } catch (...) {  // no memory: the rank's number must suffice
            }
        }
        poison_all();
        end(rank, Fate::failed);
    }

    /// Records that the rank's function has ended because of a peer; that peer's failure is the reason given to
    /// others.
    [[gnu::cold]] void rank_stopped(std::size_t rank, const PeerError& error) noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (std::optional<Failure>* const told = states_[rank].told_of(error.rank())) {
                if (!failure_) { failure_ = std::move(*told); }
                poison_all();
                end(rank, Fate::failed);
                return;
            }
        }
        rank_failed(rank, error.what());
    }

    /// Returns when every rank has ended. Meanwhile it finds deadlocks and late ranks, and writes the ranks' records.
    [[gnu::cold]] void watch() {
        DeadlockWatch deadlocks(all_states());
        const auto deadlock_check = shardkit::detail::bounded_wait(options_.deadlock_check);
        std::unique_lock lock(mutex_);
        // The system clock is used because thread sanitizers know its wait; a clock that jumps only delays a check.
        auto next_check = std::chrono::system_clock::now() + deadlock_check;
        while (running_ > 0) {
            const auto next_look = std::min(next_check, std::chrono::system_clock::now() + late_.interval());
            if (ended_.wait_until(lock, next_look) == std::cv_status::no_timeout || running_ == 0) { continue; }
            if (std::chrono::system_clock::now() >= next_check) {
                if (deadlocks.look()) { give_up("deadlock", late_.missing()); }
                next_check = std::chrono::system_clock::now() + deadlock_check;
            }
            if (failure_) {
                late_.write(failure_->rank, failure_->text);
            } else if (const auto found = late_.look()) {
                give_up("", *found);
            }
        }
        if (failure_) { late_.write(failure_->rank, failure_->text); }
    }

  private:
    [[gnu::cold]] static std::size_t checked_size(std::size_t ranks, const LaunchOptions& options,
                                                  SourceLocation where) {
        if (ranks == 0) { throw_invalid_argument(where, "threads: 0 ranks, expected at least 1"); }
        require_argument(options.deadlock_check.count() > 0, where, "threads: deadlock_check of ",
                         options.deadlock_check.count(), " ms, expected at least 1");
        for (const std::chrono::milliseconds each : {options.timeout, options.finish_timeout}) {
            require_argument(each.count() > 0, where, "threads: a timeout of ", each.count(),
                             " ms, expected at least 1");
        }
        return ranks;
    }

    std::span<const RankState> all_states() const noexcept { return {states_.get(), ranks_}; }
    /// Ends all ranks because of ranks that do not come. @pre the mutex is held
    [[gnu::cold]] void give_up(const char* what, const shardkit::detail::MissingRanks& missing) {
        if (!failure_) {
            failure_.emplace(Failure{missing.ranks.empty() ? 0 : missing.ranks.front(),
                                     shardkit::detail::concat(what, *what == '\0' ? "" : ": ", missing.text)});
            late_.write(ranks_, failure_->text);  // before the ranks are told, and go on
        }
        poison_all();
    }

    static std::vector<std::size_t> everybody(std::size_t ranks) {
        std::vector<std::size_t> all(ranks);
        std::iota(all.begin(), all.end(), std::size_t{0});
        return all;
    }

    std::size_t all_threads() const noexcept { return ranks_ * threads_of_rank(options_.overlap); }
    /// Returns the number of polls of a waiting thread if `threads` threads may need a processor. A rank waits for
    /// peers in its own calls while its streams are mostly idle; the streams wait, and a rank for them, while ranks
    /// compute.
    std::uint32_t spins(std::size_t threads) const noexcept {
        constexpr std::uint32_t brief = shared::detail::brief_spins;
        if (options_.waiting == WaitMode::automatic) { return threads <= host::detail::allowed_cpus() ? brief : 0; }
        return options_.waiting == WaitMode::spin_briefly ? brief : 0;
    }

    [[gnu::cold]] Failure why(const GroupHandle& handle, const shardkit::Call& call,
                              std::span<const std::size_t> needed) const {
        if (failure_) {
            return failure_->text.empty()
                       ? Failure{failure_->rank, shardkit::detail::concat("rank ", failure_->rank, " failed")}
                       : *failure_;
        }
        const std::size_t rank = handle.world_rank(handle.rank);
        // The first rank that ended is the cause; others may have ended because of it.
        const RankState* gone = nullptr;
        for (const std::size_t peer : needed) {
            const RankState& state = states_[peer];
            const bool ended = state.fate != Fate::running;
            if (ended && (gone == nullptr || state.ended_before < gone->ended_before)) { gone = &state; }
        }
        if (gone != nullptr) {
            const auto peer = static_cast<std::size_t>(gone - states_.get());
            return {peer, shardkit::detail::concat("rank ", peer, " returned before rank ", rank, "'s ",
                                                   name(call.signature.verb), " over ", handle.axes())};
        }
        return {rank, "the group was given up"};
    }

    void poison_all() noexcept {
        for (const auto& group : groups_) { group->poison(); }
    }

    void end(std::size_t rank, Fate fate) noexcept {
        states_[rank].fate = fate;
        states_[rank].ended_before = ranks_ - running_;
        if (--running_ == 0) { ended_.notify_one(); }
    }

    std::size_t ranks_;
    LaunchOptions options_;
    std::mutex mutex_;  // guards the groups, the failure, `running_`, and every state's fate and stopped_by
    std::optional<Failure> failure_;
    shardkit::detail::List<std::shared_ptr<Group>> groups_;
    std::shared_ptr<Group> world_group_;
    shardkit::detail::Owned<RankState[]> states_;
    LateWatch late_{all_states(), options_};  // before any rank begins, which may ask for records at once
    std::condition_variable ended_;
    std::size_t running_;
};

}  // namespace shardkit::threads::detail
