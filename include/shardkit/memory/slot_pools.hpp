// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

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
    using Make = typename SlotPool<Engine>::Make;

    explicit SlotPools(std::size_t in_flight, Make make = SlotPool<Engine>::plain_memory)
        : in_flight_(in_flight), make_(std::move(make)) {}

    /// The pool for buffers of `bytes`; made on first use, kept at its address.
    SlotPool<Engine>& pool(SlotPurpose purpose, std::size_t bytes) {
        for (Entry& entry : entries_) {
            if (entry.purpose == purpose && entry.pool.slot_bytes() == bytes) { return entry.pool; }
        }
        entries_.push_back({purpose, SlotPool<Engine>(bytes, in_flight_, make_)});
        return entries_.back().pool;
    }

  private:
    struct Entry {
        SlotPurpose purpose;
        SlotPool<Engine> pool;
    };
    std::size_t in_flight_;
    Make make_;
    std::deque<Entry> entries_;
};

}  // namespace shardkit
