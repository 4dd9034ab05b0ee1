// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/detail/not_copied.hpp>

namespace shardkit::engine {

/// Copies between memory that the host cannot access and a few slots of memory that it can, concurrently with the
/// rank's own thread. Engines whose memory is a device's make them: see host::DeviceMemory.
/// Order:   made on the rank's thread, and then used by one thread at a time, possibly another one; each copy comes
///          after the work that the stream had when this object was made. The destructor waits for the copies.
class MemoryCopies : shardkit::detail::NotCopied {
  public:
    /// The number of copies that may run at a time.
    static constexpr std::size_t slots = 2;

    virtual ~MemoryCopies() = default;

    /// Returns the largest size of a copy in bytes.
    virtual std::size_t capacity() const noexcept = 0;
    /// Starts to copy `from`, at most `capacity` bytes, into `slot`, whose contents are lost.
    /// @throws the engine's error
    virtual void begin_read(std::size_t slot, std::span<const std::byte> from) = 0;
    /// Waits for the last copy that was started with `slot`.
    /// @returns its `capacity` bytes, which begin with what was read; the caller may write to them
    /// @throws the engine's error
    virtual std::span<std::byte> finish(std::size_t slot) = 0;
    /// Starts to copy the first bytes of `slot` to `to`. They must not change until `finish`.
    /// @throws the engine's error
    virtual void begin_write(std::size_t slot, std::span<std::byte> to) = 0;
};

}  // namespace shardkit::engine
