// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <shardkit/memory/slot_pools.hpp>

namespace shardkit {

/// One group's membership in a pool and the slot that it holds at the moment, if any.
template <class Engine>
class SlotLease {
  public:
    using Event = typename Engine::Stream::Event;

    SlotLease() noexcept = default;
    SlotLease(SlotPools<Engine>& pools, SlotPurpose purpose, std::size_t bytes)
        : pool_(&pools.pool(purpose, bytes)), purpose_(purpose), ordinal_(pool_->join()) {}
    SlotLease(SlotLease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          slot_(std::exchange(other.slot_, none)),
          purpose_(other.purpose_),
          ordinal_(other.ordinal_) {}
    SlotLease& operator=(SlotLease&& other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(slot_, other.slot_);
        std::swap(purpose_, other.purpose_);
        std::swap(ordinal_, other.ordinal_);
        return *this;
    }
    ~SlotLease() {
        if (pool_ == nullptr) { return; }
        release({});
        pool_->leave();
    }

    bool held() const noexcept { return slot_ != none; }
    void* data() const noexcept { return pool_->slot(slot_).data(); }

    /// Takes a slot if none is held. Returns the event after which it may be written.
    /// @throws UsageError when all slots of the pool are held by other groups
    Event acquire(std::string_view path) {
        if (slot_ == none) { slot_ = pool_->lease(ordinal_, path, name(purpose_)); }
        return pool_->slot(slot_).last_use();
    }
    void release(Event last_use) noexcept {
        if (slot_ != none) { pool_->release(std::exchange(slot_, none), std::move(last_use)); }
    }

  private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    SlotPool<Engine>* pool_ = nullptr;
    std::size_t slot_ = none;
    SlotPurpose purpose_{};
    std::size_t ordinal_ = 0;
};

}  // namespace shardkit
