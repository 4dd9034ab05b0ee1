// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace shardkit::detail {

/// Returns the number of slots in a pool that `members` groups share.
constexpr std::size_t pool_slots(std::size_t members, std::size_t in_flight) noexcept {
    return std::min(members, in_flight);
}

/// The source of a slot's memory: make(owner, bytes).
struct SlotSource {
    const void* owner = nullptr;
    HostBuffer<std::uint8_t> (*make)(const void* owner, std::size_t bytes) = [](const void*, std::size_t bytes) {
        return HostBuffer<std::uint8_t>(bytes);
    };
};

/// Buffers of equal size that groups with equal shapes share in turn. Group k prefers slot k mod in_flight, so that
/// the same schedule gives the same addresses in every step.
/// Cost:    at most min(groups, in_flight) slots of `slot_bytes`; leasing allocates nothing.
/// Order:   a slot remembers the event of its last use; its next writer waits for that event.
class SlotPool {
  public:
    using Memory = HostBuffer<std::uint8_t>;
    using Source = SlotSource;

    struct Slot {
        Memory memory;
        std::string_view holder{};  ///< path of the group, empty when free
        Event last_use{};
    };

    /// Makes a pool. Without a source, buffers are made from their size alone.
    SlotPool(std::size_t slot_bytes, std::size_t in_flight, Source source = {})
        : slot_bytes_(slot_bytes), in_flight_(in_flight), source_(source) {}

    std::size_t slot_bytes() const noexcept { return slot_bytes_; }

    /// Adds a group and returns its number. May allocate a slot.
    std::size_t join() {
        ++members_;
        try {
            fill();
        } catch (...) {
            --members_;
            throw;
        }
        return next_ordinal_++;
    }
    /// Frees the memory unless a group holds some of it; the next lease allocates it again.
    /// @pre nothing uses it any more
    void drop() noexcept {
        for (const Slot& slot : slots_) {
            if (!slot.holder.empty()) { return; }
        }
        slots_.clear();
    }
    /// Removes a group; the last one frees the memory.
    void leave() noexcept {
        if (--members_ == 0) {
            slots_.clear();
            next_ordinal_ = 0;
        }
    }

    /// Leases a slot and returns its number. Groups that join later may move the slot, but not its memory.
    /// @throws UsageError when all slots are held, which names the holders
    std::size_t lease(std::size_t ordinal, std::string_view path, std::string_view purpose, SourceLocation where) {
        fill();
        const std::size_t count = slots_.size();
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t number = (ordinal + i) % count;
            if (slots_[number].holder.empty()) {
                slots_[number].holder = path;
                return number;
            }
        }
        std::string holders;
        for (const Slot& slot : slots_) { holders += concat(holders.empty() ? "'" : ", '", slot.holder, "'"); }
        throw_usage_error(where, "'", path, "': no ", purpose, " buffer is free, ", count, " are held by ", holders,
                          "; end a window first or raise RankOptions::in_flight");
    }
    /// Returns whether a slot is free.
    bool has_room() const noexcept {
        return slots_.size() < pool_slots(members_, in_flight_) ||
               std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.holder.empty(); });
    }
    const Slot& slot(std::size_t number) const noexcept { return slots_[number]; }
    void release(std::size_t number, Event last_use) noexcept {
        slots_[number].holder = {};
        slots_[number].last_use = last_use;
    }

  private:
    void fill() {
        while (slots_.size() < pool_slots(members_, in_flight_)) {
            slots_.push_back({source_.make(source_.owner, slot_bytes_)});
        }
    }

    std::size_t slot_bytes_;
    std::size_t in_flight_;
    Source source_;
    std::size_t members_ = 0;
    std::size_t next_ordinal_ = 0;
    List<Slot> slots_;
};

/// The purpose of a leased buffer. Pools are not shared between purposes, so that a gradient never waits for the end
/// of a window.
enum class SlotPurpose : std::uint8_t { gather, gradient, sums, reduce };

constexpr std::string_view name(SlotPurpose purpose) noexcept {
    constexpr std::array<std::string_view, 4> names{"gather", "gradient", "reduced gradient", "reduce"};
    return names[static_cast<std::size_t>(purpose)];
}

/// A rank's pools, one for each purpose and kind of group. Which windows can be open together therefore depends on
/// the program, and not on sizes after padding.
class SlotPools {
  public:
    using Source = SlotPool::Source;

    explicit SlotPools(std::size_t in_flight, Source source = {}) : in_flight_(in_flight), source_(source) {}

    /// Returns the pool for buffers of `bytes` of groups with the key `alike` (see likeness). It is made on first
    /// use, and its address is stable.
    SlotPool& pool(SlotPurpose purpose, std::size_t bytes, std::uint64_t alike) {
        for (const auto& entry : entries_) {
            if (entry->purpose == purpose && entry->alike == alike && entry->pool.slot_bytes() == bytes) {
                return entry->pool;
            }
        }
        entries_.push_back(Owned<Entry>(new Entry{purpose, alike, SlotPool(bytes, in_flight_, source_)}));
        return entries_.back()->pool;
    }
    /// Frees the memory of pools of which no slot is held; see SlotPool::drop.
    void drop() noexcept {
        for (const auto& entry : entries_) { entry->pool.drop(); }
    }

  private:
    struct Entry {
        SlotPurpose purpose;
        std::uint64_t alike;
        SlotPool pool;
    };
    std::size_t in_flight_;
    Source source_;
    List<Owned<Entry>> entries_;
};

/// A group's membership in a pool. It holds the group's slot while it has one.
class SlotLease {
  public:
    SlotLease() noexcept = default;
    SlotLease(SlotPools& pools, SlotPurpose purpose, std::size_t bytes, std::uint64_t alike = 0)
        : pool_(&pools.pool(purpose, bytes, alike)), purpose_(purpose), ordinal_(pool_->join()) {}
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
    /// Returns whether `acquire` finds a slot; true where nothing is leased.
    bool has_room() const noexcept { return pool_ == nullptr || held() || pool_->has_room(); }
    void* data() const noexcept { return pool_->slot(slot_).memory.data(); }

    /// Takes a slot unless one is held. Returns the event after which it may be written.
    /// @throws UsageError when all slots of the pool are held by other groups
    Event acquire(std::string_view path, SourceLocation where) {
        if (slot_ == none) { slot_ = pool_->lease(ordinal_, path, name(purpose_), where); }
        return pool_->slot(slot_).last_use;
    }
    void release(Event last_use) noexcept {
        if (slot_ != none) { pool_->release(std::exchange(slot_, none), last_use); }
    }

  private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    SlotPool* pool_ = nullptr;
    std::size_t slot_ = none;
    SlotPurpose purpose_{};
    std::size_t ordinal_ = 0;
};

}  // namespace shardkit::detail
