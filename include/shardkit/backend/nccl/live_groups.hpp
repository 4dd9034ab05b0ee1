// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/nccl/aborts.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/backend/nccl/shrink.hpp>
#include <shardkit/detail/immortal.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::nccl::detail {

/// The communicators of a World, and their end by an abort. The rank's thread makes and uses them. A StallWatch's
/// thread may end them in its stead: never while the rank's thread holds `locked()`, which it does in every call of
/// NCCL that uses one, and never in a launch of CUDA's or in a wait, as these may block for ever. Only the rank's
/// thread forgets the handles.
class LiveGroups : shardkit::detail::NotCopied {
  public:
    using Lock = std::unique_lock<std::recursive_mutex>;

    LiveGroups(int device, bool survivable) : survivable_(survivable), aborts_(device) { aborts_.keep(places_); }

    Group& world_group() noexcept { return groups().front(); }
    const Group& world_group() const noexcept { return places_->groups.front(); }
    /// All groups of the rank: first the world's, then in the order in which they were made.
    std::deque<Group>& groups() noexcept { return places_->groups; }
    /// Adds a place for a communicator that will be made.
    Group& add_group(std::string_view made_as) {
        const Lock lock = locked();
        Group& group = groups().emplace_back();
        group.made_as = made_as;
        return group;
    }
    /// Returns the group of a single rank, which needs no communicator; the same object for all of them.
    Group& group_alone() {
        const Lock lock = locked();
        if (places_->alone == nullptr) { places_->alone = &add_group("one rank alone"); }
        return *places_->alone;
    }
    /// Returns a group's communicator; null once it is being aborted.
    ncclComm_t native(const Group& group) const noexcept {
        const Lock lock = locked();
        return group.is_ended ? nullptr : group.comm;
    }

    /// Lets one communicator be aborted that the World can do without, and forgets it.
    void end_alone(Group& group) noexcept {
        const Lock lock = locked();
        try {
            if (group.comm != nullptr && !group.is_ended) { aborts_.begin({group.comm}); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): no memory; it is left behind
        group.is_ended = true;
        group.comm = nullptr;
    }

  protected:
    /// Leaves the places behind where NCCL is still making a communicator, as it waits for ranks that did not come in
    /// time, and no abort ends that: its thread writes the handle when they do come.
    ~LiveGroups() {
        const bool written =
            std::ranges::any_of(groups(), [](const Group& group) { return group.being_made && group.of_users; });
        if (!written) { return; }
        LeftBehind& left = shardkit::detail::immortal<LeftBehind>();
        const std::lock_guard lock(left.mutex);
        places_->next = std::exchange(left.first, places_);
    }

    Lock locked() const { return Lock(calls_); }
    bool survivable() const noexcept { return survivable_; }
    bool revoked() const noexcept {
        const Lock lock = locked();
        return revoked_;
    }

    /// Notes that the rank's thread goes on.
    void act() noexcept { acts_.fetch_add(1, std::memory_order_relaxed); }
    /// Returns the number of these notes.
    const std::atomic<std::uint64_t>& acts() const noexcept { return acts_; }
    /// Returns whether communicators are ended, or will be at once: from then on, work may look done that is not.
    const std::atomic<bool>& over() const noexcept { return over_; }
    /// Returns whether the watch has ended the communicators.
    bool stalled() const noexcept { return stalled_.load(std::memory_order_acquire); }
    /// Aborts what verbs wait for, in the stead of the rank's thread, which is blocked. Returns false, and does
    /// nothing, if that thread has acted again since there were `acts`.
    bool end_stalled(std::uint64_t acts) noexcept {
        const Lock lock = locked();
        if (acts_.load(std::memory_order_relaxed) != acts) { return false; }
        if (over_ || groups().empty()) { return true; }
        stalled_.store(true, std::memory_order_release);  // first: work looks done once it is ended
        end_from(survivable_ ? revoke_world() : groups().begin());
        return true;
    }
    /// Ends the running work of the World's communicator, if NCCL can revoke it, and returns from where on the groups
    /// are to be aborted: what hangs must end, as destructors wait for it. It comes before aborts, as the kernels of
    /// split communicators may be queued behind one of its kernels.
    std::deque<Group>::iterator revoke_world() noexcept {
        const Lock lock = locked();
        const Group& world = world_group();
        if (!revoked_ && world.owner == Group::Owner::world && world.comm != nullptr && !world.is_ended) {
            over_ = true;
            revoked_ = detail::revoke(world.comm);
        }
        return revoked_ ? std::next(groups().begin()) : groups().begin();
    }
    /// Lets communicators be aborted, from the group `first` on, and forgets them; also those that the watch has
    /// ended.
    void end_and_forget(const std::deque<Group>::iterator& first) noexcept {
        const Lock lock = locked();
        end_from(first);
        for (Group& group : groups()) {
            if (group.is_ended) { group.comm = nullptr; }
        }
    }
    /// Keeps the places of `other` until later aborts have ended, as NCCL may write there.
    void keep_for(const LiveGroups& other) {
        const Lock lock = locked();
        aborts_.keep(other.places_);
    }
    /// How long a World's end waits for aborts at most. They do not wait for peers: what takes longer is held by a
    /// CUDA graph, and ends only with that.
    static constexpr std::chrono::milliseconds most_abort_wait{30'000};
    /// Returns whether NCCL has ended everything that was aborted, after waiting at most `within` and
    /// most_abort_wait.
    bool aborts_over(std::chrono::milliseconds within) const noexcept {
        return aborts_.over(std::min(within, most_abort_wait));
    }

  private:
    void end_from(std::deque<Group>::iterator first) noexcept {
        over_ = true;
        std::vector<ncclComm_t> comms;
        try {
            for (; first != groups().end(); ++first) {
                // NCCL may still write one that is being made, while its parent's abort ends that.
                if (first->owner != Group::Owner::world || first->being_made || first->comm == nullptr ||
                    first->is_ended) {
                    continue;
                }
                comms.push_back(first->comm);
                first->is_ended = true;
            }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): no memory; the others are left behind
        aborts_.begin(std::move(comms));
    }

    /// The places that NCCL may write until its work is aborted. They are deques, as communicators point into them.
    struct Places {
        std::deque<Group> groups;
        Group* alone = nullptr;
        std::shared_ptr<Places> next;  // where they are left behind
    };
    struct LeftBehind {
        std::mutex mutex;
        std::shared_ptr<Places> first;
    };
    std::shared_ptr<Places> places_ = std::make_shared<Places>();
    bool survivable_;
    Aborts aborts_;
    mutable std::recursive_mutex calls_;
    bool revoked_ = false;
    std::atomic<bool> over_ = false;  // set before anything is aborted
    std::atomic<bool> stalled_ = false;
    std::atomic<std::uint64_t> acts_ = 0;
};

}  // namespace shardkit::nccl::detail
