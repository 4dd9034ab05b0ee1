// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace shardkit {

/// Copies between memory that the host cannot reach and a few slots of memory that it can, beside the work of the
/// rank's own thread. An engine whose buffers are no HostBuffer names such a type as `Engine::MemoryCopies`, made
/// from one of its streams.
/// Order:   made on the rank's thread, and then used by one thread at a time, which may be another; each copy is
///          ordered after what the stream had been given when this was made. Its end waits for the copies.
class MemoryCopies {
  public:
    /// Copies that may be under way at once.
    static constexpr std::size_t slots = 2;

    MemoryCopies() = default;
    MemoryCopies(const MemoryCopies&) = delete;
    MemoryCopies& operator=(const MemoryCopies&) = delete;
    virtual ~MemoryCopies() = default;

    /// Bytes that one copy may have.
    virtual std::size_t capacity() const noexcept = 0;
    /// Begins to copy `from`, at most `capacity` bytes; what `slot` held before is gone.
    /// @throws the engine's error
    virtual void begin_read(std::size_t slot, std::span<const std::byte> from) = 0;
    /// Waits for the copy that was begun last with `slot`.
    /// @return its `capacity` bytes, which begin with what was read; whoever calls may write them
    /// @throws the engine's error
    virtual std::span<std::byte> finish(std::size_t slot) = 0;
    /// Begins to copy the first bytes of `slot` to `to`: they must stay as they are until `finish`.
    /// @throws the engine's error
    virtual void begin_write(std::size_t slot, std::span<std::byte> to) = 0;
};

}  // namespace shardkit
