// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/core/source_location.hpp>

namespace shardkit::gpu {

/// Something that is looked at while the host waits for a stream, so that a failure elsewhere ends the wait: a
/// communicator whose peer is gone never completes its work.
class Watch {
  public:
    Watch() = default;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// A wait begins: a watch with a deadline starts to count.
    virtual void begin() noexcept {}
    /// Called again and again while the work is not over; what it throws leaves the wait.
    virtual void poll(SourceLocation where) = 0;

  protected:
    ~Watch() = default;
};

}  // namespace shardkit::gpu
