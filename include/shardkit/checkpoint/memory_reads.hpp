// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace shardkit {

/// Copies of memory that the host cannot read into memory that it can, beside the work of the rank's own thread. An
/// engine whose buffers are no HostBuffer names such a type as `Engine::MemoryReads`, made from one of its streams.
/// Order:   made on the rank's thread, and then used by one thread at a time, which may be another; each copy is
///          ordered after what the stream had been given when this was made. Its end waits for the copies.
class MemoryReads {
  public:
    /// Copies that may be under way at once.
    static constexpr std::size_t slots = 2;

    MemoryReads() = default;
    MemoryReads(const MemoryReads&) = delete;
    MemoryReads& operator=(const MemoryReads&) = delete;
    virtual ~MemoryReads() = default;

    /// Bytes that one copy may have.
    virtual std::size_t capacity() const noexcept = 0;
    /// Begins to copy `from`, at most `capacity` bytes; what `slot` held before is gone.
    /// @throws the engine's error
    virtual void begin(std::size_t slot, std::span<const std::byte> from) = 0;
    /// Waits for the copy that was begun last in `slot`. @return what it copied, until the slot is used again
    virtual std::span<const std::byte> finish(std::size_t slot) = 0;
};

}  // namespace shardkit
