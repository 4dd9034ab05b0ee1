// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <string_view>

#include <shardkit/memory/slot_pool.hpp>

namespace shardkit {

/// What a leased buffer is for. Pools are not shared between purposes, so that a gradient never waits for a
/// window to end.
enum class SlotPurpose : std::uint8_t { gather, gradient, reduce };

constexpr std::string_view name(SlotPurpose purpose) noexcept {
    return purpose == SlotPurpose::gather ? "gather" : purpose == SlotPurpose::gradient ? "gradient" : "reduce";
}

/// A rank's pools, one per purpose and buffer size.
template <class Engine>
class SlotPools {
  public:
    using Source = typename SlotPool<Engine>::Source;

    explicit SlotPools(std::size_t in_flight, Source source = {}) : in_flight_(in_flight), source_(source) {}

    /// The pool for buffers of `bytes`; made on first use, kept at its address.
    SlotPool<Engine>& pool(SlotPurpose purpose, std::size_t bytes) {
        for (Entry& entry : entries_) {
            if (entry.purpose == purpose && entry.pool.slot_bytes() == bytes) { return entry.pool; }
        }
        entries_.push_front({purpose, SlotPool<Engine>(bytes, in_flight_, source_)});
        return entries_.front().pool;
    }

  private:
    struct Entry {
        SlotPurpose purpose;
        SlotPool<Engine> pool;
    };
    std::size_t in_flight_;
    Source source_;
    std::forward_list<Entry> entries_;  // pools stay at their addresses; <deque> takes twice as long to read
};

}  // namespace shardkit
