// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/backoff.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/ended_by.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/live_groups.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/registered.hpp>
#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/late_ranks.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/recorder/record_files.hpp>

namespace shardkit::nccl::detail {

/// NCCL's side of a World: its communicators, their state, and the limits of waits for peers.
class Connections : public LiveGroups, private gpu::Watch {
  public:
    /// The number of events of each of a World's timelines that are known to have happened.
    using Progress = std::array<std::uint64_t, 7>;

    Connections(const Options& options, int device)
        : LiveGroups(device, options.survivable), on_late_(options.on_late), timeout_(options.timeout) {}

    /// Writes this rank's record, if Options::record says where, because of the exception that is being handled.
    void record_exception() noexcept {
        if (records_ != nullptr) { records_->tell_exception(); }
    }

    /// Returns the journal of the verbs that are given to a stream.
    engine::Journal& journal() noexcept { return journal_; }

    /// Ends this rank's part without its peers, whose verbs then fail, at the latest after their timeout. Returns at
    /// once; NCCL ends running work in the background.
    void abort() noexcept { abort(groups().begin()); }
    /// Aborts all communicators except the World's, which can then be shrunk to the remaining ranks: see Survivors.
    /// Its running work ends at once. Where NCCL cannot revoke it, before 2.28.7, it is aborted too.
    void revoke() noexcept {
        if (finished_ || groups().empty()) { return; }
        abort(revoke_world());
    }

    /// Checks that this World is usable. @throws its failure, if any
    void require_usable(std::string_view doing, SourceLocation where) {
        if (stalled() && failure_.empty()) {
            fail(doing,
                 shardkit::detail::concat("a verb is not over after ", limit().count(),
                                          " ms in which nothing was done and the host did not come to wait for it, "
                                          "perhaps blocked in a launch: a rank is gone, or has not made its calls",
                                          last_calls(journal_)),
                 where);
        }
        if (!failure_.empty()) {
            throw CommError("nccl", doing,
                            shardkit::detail::concat("this World has ended after an earlier failure: ", failure_),
                            where);
        }
        if (finished_) { throw_usage_error(where, "nccl: ", doing, " after World::finish"); }
    }

    /// Keeps communicators from being aborted while calls of NCCL use them. To be held for no launch of CUDA's and no
    /// wait, as these may block for ever.
    /// @throws what the watch has aborted, if it has
    [[nodiscard]] Lock calls(std::string_view doing, SourceLocation where) {
        Lock lock = locked();
        act();
        if (stalled()) { require_usable(doing, where); }
        return lock;
    }
    [[nodiscard]] Lock calls(const Call& call) {
        Lock lock = locked();
        act();
        if (stalled()) { require_usable(call.doing(), call.where); }
        return lock;
    }
    /// Makes the NCCL call `f(communicator)` outside of a group, and waits while NCCL is still working on it.
    /// @throws CommError, after an abort, unless the call succeeded
    template <class F>
    void complete(const Group& group, std::string_view nccl_call, const F& f, std::string_view doing,
                  SourceLocation where) {
        Lock lock = calls(doing, where);
        const ncclResult_t code = f(group.comm);
        lock.unlock();
        complete_begun(group, nccl_call, code, doing, where);
    }
    /// Makes a verb's call likewise.
    template <class F>
    void complete(const Call& call, std::string_view nccl_call, const F& f) {
        Lock lock = calls(call);
        const ncclResult_t code = f(call.group.comm);
        lock.unlock();
        if (code != ncclSuccess) { complete_begun(call.group, nccl_call, code, call.doing(), call.where); }
    }
    /// Waits while NCCL is still working on a call that returned `code`.
    void complete_begun(const Group& group, std::string_view nccl_call, ncclResult_t code, std::string_view doing,
                        SourceLocation where) {
        if (code == ncclSuccess) { return; }
        require_begun(group, code, nccl_call, doing, where);
        await(group, nccl_call, doing, where);
    }
    /// Makes the call `f(communicator of parent, where the new one goes)` that makes `made` out of `parent`, a group
    /// of `of`. If the parent does not block, NCCL returns ncclSuccess while it is still working, and writes the new
    /// communicator when the parent is ready again, or was aborted.
    /// Source:  ncclCommInitChildComm in NCCL's init.cc, 2.18 to 2.30; NCCL issue 1472
    /// @throws CommError, after an abort, unless there is a usable communicator
    template <class F>
    void make(Connections& of, const Group& parent, Group& made, std::string_view nccl_call, const F& f,
              Made expected, std::string_view doing, SourceLocation where) {
        {
            const Lock parents = of.locked();
            const Lock own = locked();
            if (parent.is_ended) { of.require_usable(doing, where); }
            const ncclResult_t code = f(parent.comm, &made.comm);
            require_begun(parent, code, nccl_call, doing, where);
            made.begin_making(parent);
        }
        of.await(parent, nccl_call, doing, where, limit());  // as late as this World lets its ranks come
        {
            const Lock lock = locked();
            made.being_made = false;
        }
        if (expected == Made::none) { return; }
        if (made.comm == nullptr) {
            fail(doing, shardkit::detail::concat(nccl_call, " is over and has made no communicator"), where);
        }
        await(made, nccl_call, doing, where);
    }
    /// Waits until the communicator's last call has ended, and returns the communicator's state then.
    ncclResult_t state_after(const Group& group, std::string_view nccl_call, std::string_view doing,
                             SourceLocation where, std::optional<std::chrono::milliseconds> given = {}) {
        const std::chrono::milliseconds limit = given.value_or(this->limit());
        shardkit::detail::LateWait wait;
        wait.begin();
        for (const gpu::detail::Backoff backoff;; backoff.rest()) {
            const ncclResult_t state = state_of(group, doing, where);
            if (state != ncclInProgress) { return state; }
            if (is_late(wait, doing, where, limit)) {
                fail_late(doing,
                          shardkit::detail::concat("not every rank has made this call within ", limit.count(),
                                                   " ms (", nccl_call, ")"),
                          where);
            }
        }
    }
    /// Aborts everything; in a survivable World, everything except its communicator.
    /// @throws CommError always
    [[noreturn]] void fail(std::string_view doing, std::string_view what, SourceLocation where) {
        if (failure_.empty()) {
            failure_ = shardkit::detail::concat(doing, " at ", where.file, ":", where.line, ": ", what);
        }
        survivable() ? revoke() : abort();
        throw CommError("nccl", doing, what, where);
    }

  protected:
    ~Connections() = default;

    /// Says who writes this rank's records; null before and after its life.
    void set_records(shardkit::detail::RecordWriter* records) noexcept { records_ = records; }

    /// Deregisters memory before it is freed: from communicators of the user, which live on, and with `own` from this
    /// World's too, as NCCL 2.28.3 to 2.29.3 do not free the windows of a communicator that they destroy.
    /// @throws CommError
    void deregister(bool own, SourceLocation where) {
        for (Group& group : groups()) {
            const bool lives_on = group.owner == Group::Owner::user || (own && group.comm != nullptr);
            for (; !group.registered.empty(); group.registered.pop_back()) {
                if (lives_on) { group.registered.back().undo(group.comm, where); }
            }
        }
    }

    /// Returns how long the rank waits now without progress: Options::timeout, or what a Deadline says. Any thread
    /// may call it.
    std::chrono::milliseconds limit() const noexcept { return journal_.limit(timeout_); }

    const EndedBy& ended_by() const noexcept { return ended_by_; }
    bool finished() const noexcept { return finished_; }
    bool failed() const noexcept { return !failure_.empty() || stalled(); }
    /// Returns whether NCCL has ended everything that was aborted, within the timeout and most_abort_wait.
    bool aborts_over() const noexcept { return LiveGroups::aborts_over(limit()); }
    /// Returns the watch for streams whose waits must end when a peer fails.
    gpu::Watch& watch() noexcept { return *this; }

    /// Waits until the communicator's last call has ended.
    void await(const Group& group, std::string_view nccl_call, std::string_view doing, SourceLocation where,
               std::optional<std::chrono::milliseconds> limit = {}) {
        const ncclResult_t state = state_after(group, nccl_call, doing, where, limit);
        if (state != ncclSuccess) { fail(doing, describe(state, nccl_call, group.comm), where); }
    }
    /// Ends and destroys the communicators that the World made; its peers must do the same.
    void close(SourceLocation where) {
        deregister(true, where);
        // All are told before any is waited for, as ranks may have made them in different orders.
        for_each_own([&](Group& group) {
            require_begun(group, ncclCommFinalize(group.comm), "ncclCommFinalize", "finish", where);
        });
        for_each_own([&](Group& group) { await(group, "ncclCommFinalize", "finish", where); });
        for_each_own([&](Group& group) {
            check(ncclCommDestroy(std::exchange(group.comm, nullptr)), "ncclCommDestroy", "finish", where);
        });
        finished_ = true;
    }

    /// Registers new chunks with every communicator; does nothing for Registration::none.
    void register_chunks(std::span<const gpu::detail::Arena::Chunk> chunks, Registration registration,
                         SourceLocation where) {
        if (registration == Registration::none) { return; }
        for (Group& group : groups()) {
            if (group.comm == nullptr || group.only_compares) { continue; }
            while (group.registered.size() < chunks.size()) {
                const auto& chunk = chunks[group.registered.size()];
                const std::string_view nccl_call = Registered::call(registration);
                {
                    const Lock lock = calls("registration", where);
                    const ncclResult_t code = group.registered.emplace_back().make(group.comm, chunk, registration);
                    require_begun(group, code, nccl_call, "registration", where);
                }
                // ncclCommWindowRegister returns ncclSuccess while it is still working (dev_runtime.cc, from 2.28).
                await(group, nccl_call, "registration", where);
            }
        }
    }

    /// Makes a communicator for the remaining ranks of `old`. `old` runs no more verbs, and its end waits for no
    /// peer.
    /// @throws CommError when `old` failed without being survivable or beyond what NCCL can shrink, or when a
    ///         remaining rank does not come
    void shrink_from(Connections& old, std::span<const std::size_t> lost, ncclConfig_t config, SourceLocation where) {
        constexpr std::string_view doing = "Survivors";
        const Group& from = old.world_group();
        if (old.stalled() && old.failure_.empty()) {
            try {
                old.require_usable(doing, where);
            } catch (const CommError&) {}  // NOLINT(bugprone-empty-catch): what was told to `old` is noted there now
        }
        if (from.comm == nullptr) { old.require_usable(doing, where); }
        ncclResult_t state = ncclSuccess;
        if (old.revoked()) { state = old.state_after(from, "ncclCommRevoke", doing, where); }
        if (old.failure_.empty()) { old.failure_ = "its survivors have a World of their own"; }
        Group& made = add_group("world");
        old.keep_for(*this);
        make(
            old, from, made, "ncclCommShrink",
            [&](ncclComm_t comm, ncclComm_t* out) {
                const ncclResult_t code = shrink(comm, lost, config, out);
                if (code != ncclSuccess && code != ncclInProgress && state != ncclSuccess) {
                    fail(doing,
                         shardkit::detail::concat(describe(code, "ncclCommShrink", comm),
                                                  ": NCCL makes no communicator out of one whose connections failed "
                                                  "like this; connect a World of the survivors by a new UniqueId"),
                         where);
                }
                return code;
            },
            Made::communicator, doing, where);
    }

  private:
    template <class F>
    void for_each_own(const F& f) {
        for (Group& group : groups()) {
            if (group.owner == Group::Owner::world && group.comm != nullptr) { f(group); }
        }
    }
    /// Returns the current state of the communicator.
    ncclResult_t state_of(const Group& group, std::string_view doing, SourceLocation where) {
        ncclResult_t state = ncclSuccess;
        Lock lock = locked();
        act();
        if (group.is_ended) { require_usable(doing, where); }
        const ncclResult_t code = ncclCommGetAsyncError(group.comm, &state);
        lock.unlock();
        if (code != ncclSuccess) { fail(doing, describe(code, "ncclCommGetAsyncError", group.comm), where); }
        return state;
    }
    /// Checks that a call has begun: a result that means that NCCL continues in the background is no error.
    void require_begun(const Group& group, ncclResult_t code, std::string_view nccl_call, std::string_view doing,
                       SourceLocation where) {
        if (code != ncclSuccess && code != ncclInProgress) {
            fail(doing, describe(code, nccl_call, group.comm), where);
        }
    }

    /// Returns whether the GPU has made progress with this World's work since the last call with this `seen`. For any
    /// thread.
    virtual bool progressed(Progress& seen) noexcept = 0;

    /// Returns whether a wait has taken too long; warns after half of the time.
    bool is_late(shardkit::detail::LateWait& wait, std::string_view doing, SourceLocation where,
                 std::chrono::milliseconds limit) {
        return wait.is_late(limit, on_late_, [&](std::chrono::milliseconds after) {
            return shardkit::detail::concat(doing, " at ", where.file, ":", where.line, " is not over after ",
                                            after.count(), " ms");
        });
    }
    /// Fails with this rank's last calls and, if the ranks write files, where these are.
    [[noreturn]] void fail_late(std::string_view doing, const std::string& why, SourceLocation where) {
        fail(doing, why + last_calls(journal_) + (records_ == nullptr ? "" : records_->tell_and_wait(why)), where);
    }

    void begin() noexcept override { wait_.begin(); }
    void poll(SourceLocation where) override {
        constexpr const char* doing = "synchronize";
        if (ended_by_.exits()) { throw CommError("nccl", doing, "the process ends, and waits for nobody", where); }
        act();
        if (over() || failure_.empty()) { require_usable(doing, where); }
        if (progressed(seen_)) { wait_.begin(); }
        for (const Group& group : groups()) {
            if (group.comm == nullptr) { continue; }
            const ncclResult_t state = state_of(group, doing, where);
            if (state != ncclSuccess && state != ncclInProgress) {
                fail(doing,
                     shardkit::detail::concat("an earlier call over ", group.made_as,
                                              " failed: ", describe(state, "ncclCommGetAsyncError", group.comm)),
                     where);
            }
        }
        if (is_late(wait_, doing, where, limit())) {
            fail_late(
                doing,
                shardkit::detail::concat("the stream's work is not over after ", limit().count(),
                                         " ms in which nothing was done: a rank is gone, or has not made its calls"),
                where);
        }
    }

    // A stream whose kernels were aborted looks like one whose work is done. Where survivors have left a sound World,
    // nothing was aborted.
    void passed(SourceLocation where) override {
        if (over()) { require_usable("synchronize", where); }
    }
    bool has_cut_off() const noexcept override { return over(); }

    void abort(const std::deque<Group>::iterator& first) noexcept {
        if (finished_) { return; }
        if (failure_.empty()) { failure_ = "this rank gave up"; }
        end_and_forget(first);
    }
    EndedBy ended_by_;
    engine::Journal journal_;
    shardkit::detail::RecordWriter* records_ = nullptr;
    std::function<void(const std::string&)> on_late_;
    std::chrono::milliseconds timeout_;
    bool finished_ = false;
    std::string failure_;
    shardkit::detail::LateWait wait_;
    Progress seen_{};
};

}  // namespace shardkit::nccl::detail
